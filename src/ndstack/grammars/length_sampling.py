"""Length-conditioned sampling: the table T[A, ℓ] and the two algorithms of section 5.5.

T[A, ℓ] is the weight of all derivations of strings of length ℓ from A. On the binary grammar it takes one
convolution per rule and length, so a whole table up to n costs O(|G| n²) instead of one term per composition
of ℓ. ε-rules and unary rules enter through the closures of `binarization`; a sampled derivation is one of the
grammar as given.
"""

import math
from bisect import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ndstack.errors import LanguageError
from ndstack.grammars.binarization import Step, binarise
from ndstack.grammars.grammar import Nonterminal, Rule, WeightedCFG
from ndstack.grammars.trees import leaves, tree_of_derivation

if TYPE_CHECKING:
    from nltk import Tree


class Random(Protocol):
    """A random number generator, such as numpy's `Generator` or the standard library's `Random`."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class LengthTable:
    """The weights of a weighted grammar by length, and sampling from it; the table grows as needed."""

    def __init__(self, grammar: WeightedCFG) -> None:
        self.grammar = grammar
        self._binary = binarise(grammar)
        self._steps = sorted(self._binary.binary_steps(), key=lambda step: step.parent)
        self._parents = np.array([s.parent for s in self._steps], int)
        self._children = np.array([s.children for s in self._steps], int).reshape(-1, 2)
        with np.errstate(divide="ignore"):
            self._log_weights = np.log([s.weight for s in self._steps])
            self._table = np.log(self._binary.null)[:, None]  # [A, ℓ] log T, for ℓ = 0
        self._log_closure = np.log(self._binary.closure.weights)
        self._choices: dict[tuple[int, int], _Choices] = {}

    def log_weight(self, length: int, nonterminal: Nonterminal | None = None) -> float:
        """Return log T[A, ℓ], which is -inf if there are no strings; A is the start variable by default."""
        if length < 0:
            return -math.inf
        node = self._binary.start if nonterminal is None else self._binary.index[nonterminal]
        return float(self.upto(length)[node, length])

    def lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from low to high, both included, that some string has."""
        return [n for n in range(max(low, 0), high + 1) if self.log_weight(n) > -math.inf]

    def sample(self, length: int, rng: Random) -> tuple[str, ...]:
        """Return a string of exactly this length, with probability p(w) / T[S, ℓ] ("SampleSized")."""
        return leaves(self._derivation(length, rng))

    def sample_tree(self, length: int, rng: Random) -> "Tree":
        """Return a derivation whose string has exactly this length, as a tree of the grammar."""
        return tree_of_derivation(self._derivation(length, rng))

    @property
    def size(self) -> int:
        """The number of symbols of the binary grammar."""
        return self._binary.size

    @property
    def binary_steps(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Parents, left and right children of all binary steps, [3, R], and their log weights, [R]."""
        return np.vstack([self._parents, self._children.T]), self._log_weights

    def upto(self, length: int) -> NDArray[np.float64]:
        """Return log T[A, ℓ] for every symbol of the binary grammar, with columns 0 to at least `length`."""
        while self._table.shape[1] <= length:
            known = self._table.shape[1]
            wider = np.full((len(self._table), max(2 * known, length + 1)), -math.inf)
            wider[:, :known] = self._table
            for column in range(known, wider.shape[1]):
                self._fill(wider, column)
            self._table = wider
        return self._table

    def _fill(self, table: NDArray[np.float64], length: int) -> None:
        """Compute T[A, ℓ] = Σ_B (I - U)^{-1}[A, B] ( [B = a, ℓ = 1] + Σ_{B→CD} w Σ_k T[C, k] T[D, ℓ-k] )."""
        direct = np.full(len(table), -math.inf)
        if length == 1:
            direct[[isinstance(node, str) for node in self._binary.nodes]] = 0.0
        elif self._steps:
            left = table[self._children[:, 0], 1:length]
            right = table[self._children[:, 1], length - 1 : 0 : -1]
            convolution = np.logaddexp.reduce(left + right, axis=1)
            np.logaddexp.at(direct, self._parents, self._log_weights + convolution)
        closure = self._binary.closure
        np.logaddexp.at(table[:, length], closure.parents, self._log_closure + direct[closure.children])

    def _derivation(self, length: int, rng: Random) -> list[Rule]:
        """Return the rules of a leftmost derivation."""
        if self.log_weight(length) == -math.inf:
            raise LanguageError(no_strings("the grammar", length, self.lengths(length - 20, length + 20)))
        rules: list[Rule] = []
        open_ = [(self._binary.start, length)]
        while open_:
            node, size = open_.pop()
            choices = self._choices.get((node, size)) or self._choices_for(node, size)
            step, sizes = choices.draw(rng.random())
            if step.rule is not None:
                rules.append(step.rule)
            for child, child_size in zip(reversed(step.children), reversed(sizes), strict=True):
                if not isinstance(self._binary.nodes[child], str):
                    open_.append((child, child_size))
        return rules

    def _choices_for(self, node: int, size: int) -> "_Choices":
        """Return every step from the node with every way to divide the length among its children."""
        table = self._table
        options: list[tuple[Step, tuple[int, ...]]] = []
        logs: list[float] = []
        for step in self._binary.steps[node]:
            for sizes in _divisions(len(step.children), size):
                parts = (table[c, s] for c, s in zip(step.children, sizes, strict=True))
                log = math.log(step.weight) + sum(parts)
                if log > -math.inf:
                    options.append((step, sizes))
                    logs.append(log)
        choices = _Choices(options, logs)
        self._choices[node, size] = choices
        return choices


class _Choices:
    """Options with probabilities proportional to exp(logs), from which `draw` selects one by bisection."""

    def __init__(self, options: list[tuple[Step, tuple[int, ...]]], logs: Sequence[float]) -> None:
        self._options = options
        shares = np.exp(np.array(logs) - np.max(logs))
        self._bounds: list[float] = (np.cumsum(shares) / shares.sum())[:-1].tolist()

    def draw(self, uniform: float) -> tuple[Step, tuple[int, ...]]:
        return self._options[bisect(self._bounds, uniform)]


def _divisions(parts: int, size: int) -> list[tuple[int, ...]]:
    """Return the ways to write `size` as a sum of 0, 1 or 2 lengths."""
    if parts == 2:
        return [(k, size - k) for k in range(size + 1)]
    if parts == 1:
        return [(size,)]
    return [()] if size == 0 else []


def no_strings(what: str, length: int, near: Sequence[int]) -> str:
    """Return the message about a length without strings, with the nearest lengths that have strings."""
    nearest = sorted(sorted(near, key=lambda n: abs(n - length))[:6])
    hint = f"nearby lengths: {', '.join(map(str, nearest))}" if nearest else "try another length"
    return f"{what} has no strings of length {length}; {hint}"
