"""A grammar with at most two symbols on a right side, as arrays, for the dynamic programmes.

A → X₁X₂X₃ becomes A → X₁⟨X₂X₃⟩ and ⟨X₂X₃⟩ → X₂X₃ (weight 1); rules share equal tails. ε-rules and unary
rules stay: the weight `null` with which a symbol derives ε and the closure (I - U)^{-1} of all ways to pass
from one symbol to another without consuming anything take their place in the recurrences, so that
derivations remain derivations of the grammar as given.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.fixed_point import derive_nonempty, null_weights, star
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule, Symbol, WeightedCFG

Node = Symbol | tuple[Symbol, ...]  # a grammar symbol or a tail ⟨X₂ ... X_p⟩, p > 2


@dataclass(frozen=True)
class Step:
    """One rule of the binary grammar: symbol numbers, and the grammar's rule if it begins one."""

    parent: int
    children: tuple[int, ...]
    weight: float
    rule: Rule | None


@dataclass(frozen=True)
class BinaryGrammar:
    """Symbols by number, steps grouped by number of children, and the two closures."""

    nodes: tuple[Node, ...]
    index: dict[Node, int]
    start: int
    steps: tuple[tuple[Step, ...], ...]  # [symbol] -> its steps
    null: NDArray[np.float64]  # [N] weight of ε
    closure: NDArray[np.float64]  # [N, N] (I - U)^{-1}

    @property
    def size(self) -> int:
        """The number of symbols."""
        return len(self.nodes)

    def binary_steps(self) -> list[Step]:
        """The steps with two children."""
        return [step for own in self.steps for step in own if len(step.children) == 2]


@lru_cache(maxsize=64)
def binarise(grammar: WeightedCFG) -> BinaryGrammar:
    """The binary form of a weighted grammar."""
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
    full = derive_nonempty(grammar)
    return BinaryGrammar(
        nodes=tuple(index),
        index=index,
        start=index[grammar.start],
        steps=tuple(map(tuple, steps)),
        null=null,
        closure=star(_passing(steps, null) * [_is_full(node, full) for node in index], "unary rules"),
    )


def uniform(grammar: CFG) -> PCFG:
    """The grammar with equal probabilities for all rules of a nonterminal; same language."""
    return PCFG(
        tuple(Rule(r.left, r.right, 1 / len(grammar.rules_for(r.left))) for r in grammar.rules),
        grammar.start,
    )


def weighted(grammar: CFG) -> WeightedCFG:
    """The grammar itself if it has weights, its uniform version if not."""
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


def _is_full(node: Node, full: set[Nonterminal]) -> bool:
    """Whether a node derives anything other than ε; to pass to one that does not leads nowhere."""
    symbols = node if isinstance(node, tuple) else (node,)
    return any(isinstance(s, str) or s in full for s in symbols)


def _passing(steps: list[list[Step]], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """U[A, B]: weight of A → B, A → BC and A → CB where C derives ε."""
    passing = np.zeros((len(steps), len(steps)))
    for own in steps:
        for step in own:
            if len(step.children) == 1:
                passing[step.parent, step.children[0]] += step.weight
            elif len(step.children) == 2:
                left, right = step.children
                passing[step.parent, left] += step.weight * null[right]
                passing[step.parent, right] += step.weight * null[left]
    return passing
