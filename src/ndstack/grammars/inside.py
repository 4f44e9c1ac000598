"""The weight of a string: the inside algorithm on the binary grammar, for any ε- and unary rules.

    inside[i, l, A] = Σ_B (I - U)^{-1}[A, B] ( Σ_{B→CD} w Σ_k inside[i, k, C] inside[i+k, l-k, D] )

`log_inside` runs a compiled kernel in which every span carries its own exponent, so that strings of any
length keep full precision; should any product come near underflow, the string is done again by
`log_inside_reference`, in log space throughout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.binarization import BinaryGrammar, binarise, weighted
from ndstack.grammars.grammar import CFG, WeightedCFG

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def log_inside(grammar: CFG, word: Sequence[str]) -> float:
    """The log of the total weight of all derivations of `word`; -inf if there are none.

    A grammar without weights counts with equal probabilities for the rules of a nonterminal.
    """
    grammar = weighted(grammar)
    binary = binarise(grammar)
    numbers = [binary.index.get(symbol, -1) for symbol in word]
    if -1 in numbers:
        return -math.inf
    if not numbers:
        return math.log(null) if (null := binary.null[binary.start]) > 0 else -math.inf
    from ndstack.grammars.inside_loops import inside_kernel  # here, since numba takes long to import

    tables = _tables(grammar)
    result, safe = inside_kernel(
        np.array(numbers, np.int32), binary.start, tables.first, tables.parent, tables.right,
        tables.weight, tables.up_first, tables.up_parent, tables.up_weight,
    )  # fmt: skip
    return float(result) if safe else log_inside_reference(grammar, word)


def generates(grammar: CFG, word: Sequence[str]) -> bool:
    """Whether the grammar derives `word`."""
    return log_inside(grammar, word) > -math.inf


def log_inside_reference(grammar: CFG, word: Sequence[str]) -> float:
    """`log_inside` in log space, span by span; slow, and right for any weights."""
    grammar = weighted(grammar)
    return float(log_inside_chart(grammar, word)[0, len(word), binarise(grammar).start])


def log_inside_chart(grammar: WeightedCFG, word: Sequence[str]) -> Floats:
    """[i, j, A]: the log inside weights of all spans of a word that are not empty, i < j."""
    binary = binarise(grammar)
    numbers = [binary.index[symbol] for symbol in word]
    n = len(numbers)
    steps = binary.binary_steps()
    parent = np.array([s.parent for s in steps], int)
    left = np.array([s.children[0] for s in steps], int)
    right = np.array([s.children[1] for s in steps], int)
    with np.errstate(divide="ignore"):
        log_weight = np.log([s.weight for s in steps])
    closure, log_closure = binary.closure, np.log(binary.closure.weights)
    chart = np.full((n + 1, n + 1, binary.size), -math.inf)  # [i, j, A]
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j = i + length
            direct = np.full(binary.size, -math.inf)
            if length == 1:
                direct[numbers[i]] = 0.0
            elif steps:
                splits = chart[i, i + 1 : j][:, left] + chart[i + 1 : j, j][:, right]
                np.logaddexp.at(direct, parent, log_weight + np.logaddexp.reduce(splits, axis=0))
            np.logaddexp.at(chart[i, j], closure.parents, log_closure + direct[closure.children])
    return chart


@dataclass(frozen=True)
class _Tables:
    """Binary steps grouped by left child, closure entries grouped by child (compressed rows)."""

    first: Ints
    parent: Ints
    right: Ints
    weight: Floats
    up_first: Ints
    up_parent: Ints
    up_weight: Floats


@lru_cache(maxsize=64)
def _tables(grammar: WeightedCFG) -> _Tables:
    binary = binarise(grammar)
    steps = sorted(binary.binary_steps(), key=lambda step: step.children[0])
    closure = binary.closure
    return _Tables(
        first=_row_starts(np.array([s.children[0] for s in steps], int), binary),
        parent=np.array([s.parent for s in steps], np.int32),
        right=np.array([s.children[1] for s in steps], np.int32),
        weight=np.array([s.weight for s in steps], np.float64),
        up_first=_row_starts(closure.children, binary),
        up_parent=closure.parents.astype(np.int32),
        up_weight=closure.weights,
    )


def _row_starts(rows: NDArray[np.intp], binary: BinaryGrammar) -> Ints:
    return np.searchsorted(rows, np.arange(binary.size + 1)).astype(np.int32)
