"""A grammar with at most two symbols on a right side, as arrays, for the dynamic programmes.

A → X₁X₂X₃ becomes A → X₁⟨X₂X₃⟩ and ⟨X₂X₃⟩ → X₂X₃ (weight 1); rules share equal tails. ε-rules and unary rules
are kept. In the recurrences they are replaced by the weight `null` with which a symbol derives ε, and by the
closure (I - U)^{-1} of all ways to get from one symbol to another without consuming anything. Therefore every
derivation is one of the grammar as given.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.fixed_point import derive_nonempty, null_weights, star
from ndstack.grammars.grammar import CFG, PCFG, Rule, Symbol, WeightedCFG

Node = Symbol | tuple[Symbol, ...]  # a grammar symbol or a tail ⟨X₂ ... X_p⟩, p > 2


@dataclass(frozen=True)
class Step:
    """One rule of the binary grammar, symbols by number, and the rule of the grammar that it begins."""

    parent: int
    children: tuple[int, ...]
    weight: float
    rule: Rule | None


@dataclass(frozen=True)
class Closure:
    """The nonzero entries of (I - U)^{-1}, ordered by child."""

    parents: NDArray[np.intp]
    children: NDArray[np.intp]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class BinaryGrammar:
    """The symbols by number, the steps of each, and the weights of ε and of unary chains."""

    nodes: tuple[Node, ...]
    index: dict[Node, int]
    start: int
    steps: tuple[tuple[Step, ...], ...]  # [symbol] -> its steps
    null: NDArray[np.float64]  # [N] weight of ε
    closure: Closure

    @property
    def size(self) -> int:
        """The number of symbols."""
        return len(self.nodes)

    def binary_steps(self) -> list[Step]:
        """Return the steps with two children."""
        return [step for own in self.steps for step in own if len(step.children) == 2]


@lru_cache(maxsize=64)
def binarise(grammar: WeightedCFG) -> BinaryGrammar:
    """Return the binary form of a weighted grammar."""
    index: dict[Node, int] = {}
    symbols: tuple[Symbol, ...] = (*grammar.nonterminals, *grammar.terminals)
    for symbol in symbols:
        index[symbol] = len(index)
    flat: list[tuple[Node, tuple[Node, ...], float, Rule | None]] = []
    for rule in grammar.rules:
        flat.append((rule.left, _head_and_tail(rule.right), rule.weight, rule))
        tail = rule.right[1:]
        while len(tail) >= 2 and tail not in index:
            index[tail] = len(index)
            flat.append((tail, _head_and_tail(tail), 1.0, None))
            tail = tail[1:]

    steps: list[list[Step]] = [[] for _ in index]
    for left, right, weight, origin in flat:
        children = tuple(index[node] for node in right)
        steps[index[left]].append(Step(index[left], children, weight, origin))
    null = _null_of_nodes(grammar, index)
    return BinaryGrammar(
        nodes=tuple(index),
        index=index,
        start=index[grammar.start],
        steps=tuple(map(tuple, steps)),
        null=null,
        closure=_closure(_passing(steps, null, _full_nodes(grammar, index)), len(index)),
    )


def uniform(grammar: CFG) -> PCFG:
    """Return the grammar with equal probabilities for all rules of a nonterminal."""
    return PCFG(
        tuple(Rule(r.left, r.right, 1 / len(grammar.rules_for(r.left))) for r in grammar.rules), grammar.start
    )


def weighted(grammar: CFG) -> WeightedCFG:
    """Return the grammar itself if it has weights, its uniform version if not."""
    return grammar if isinstance(grammar, WeightedCFG) else uniform(grammar)


def _head_and_tail(right: tuple[Symbol, ...]) -> tuple[Node, ...]:
    return right if len(right) <= 2 else (right[0], right[1:])


def _null_of_nodes(grammar: WeightedCFG, index: dict[Node, int]) -> NDArray[np.float64]:
    of_symbol = null_weights(grammar)
    null = np.zeros(len(index))
    for node, i in index.items():
        if isinstance(node, tuple):
            null[i] = np.prod([0.0 if isinstance(s, str) else of_symbol[s] for s in node])
        elif not isinstance(node, str):
            null[i] = of_symbol[node]
    return null


def _full_nodes(grammar: WeightedCFG, index: dict[Node, int]) -> set[int]:
    """Return the nodes that derive anything other than ε; only these can consume a symbol."""
    full = derive_nonempty(grammar)
    return {
        i
        for node, i in index.items()
        if any(isinstance(s, str) or s in full for s in (node if isinstance(node, tuple) else (node,)))
    }


def _passing(
    steps: list[list[Step]], null: NDArray[np.float64], full: set[int]
) -> dict[tuple[int, int], float]:
    """Return U[A, B], the weight of A → B, and of A → BC and A → CB where C derives ε."""
    passing: dict[tuple[int, int], float] = {}
    for step in (step for own in steps for step in own):
        if len(step.children) == 1:
            ways = [(step.children[0], 1.0)]
        else:
            ways = list(zip(step.children, (null[c] for c in reversed(step.children)), strict=True))
        for child, share in ways:
            if share > 0 and child in full:
                entry = (step.parent, child)
                passing[entry] = passing.get(entry, 0.0) + step.weight * float(share)
    return passing


def _closure(passing: dict[tuple[int, int], float], size: int) -> Closure:
    active = sorted({node for entry in passing for node in entry})
    place = {node: i for i, node in enumerate(active)}
    matrix = np.zeros((len(active), len(active)))
    for (parent, child), weight in passing.items():
        matrix[place[parent], place[child]] = weight
    rest = [node for node in range(size) if node not in place]
    whole = star(matrix, "unary rules")
    parents, children = np.nonzero(whole)
    nodes = np.array(active, np.intp)
    result = (
        np.concatenate([nodes[parents], np.array(rest, np.intp)]),
        np.concatenate([nodes[children], np.array(rest, np.intp)]),
        np.concatenate([whole[parents, children], np.ones(len(rest))]),
    )
    order = np.argsort(result[1], kind="stable")
    return Closure(result[0][order], result[1][order], result[2][order])
