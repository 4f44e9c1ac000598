"""The weight of a string: the inside algorithm on the binary grammar, with ε-rules and unary rules.

    inside[i, l, A] = Σ_B (I - U)^{-1}[A, B] ( Σ_{B→CD} w Σ_k inside[i, k, C] inside[i+k, l-k, D] )

`log_inside` runs a compiled kernel in which every span has an exponent of its own, so that strings of any
length keep full precision. If any product comes near underflow, the string is computed again in log space by
`log_inside_reference`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.binarization import BinaryGrammar, binarise, weighted
from ndstack.grammars.grammar import CFG, WeightedCFG
from ndstack.semirings import log_or_minus_infinity

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def log_inside(grammar: CFG, word: Sequence[str]) -> float:
    """Return the log of the total weight of all derivations of `word`; -inf if there are none.

    In a grammar without weights, the rules of a nonterminal are equally probable.
    """
    grammar = weighted(grammar)
    binary = binarise(grammar)
    numbers = [binary.index.get(symbol, -1) for symbol in word]
    if -1 in numbers:
        return -math.inf
    if not numbers:
        return log_or_minus_infinity(binary.null[binary.start])
    from ndstack.grammars.inside_loops import inside_kernel  # imported here because numba takes long

    tables = _tables(grammar)
    result, safe = inside_kernel(
        np.array(numbers, np.int32), binary.start, tables.first, tables.parent, tables.right,
        tables.weight, tables.up_first, tables.up_parent, tables.up_weight,
    )  # fmt: skip
    return float(result) if safe else log_inside_reference(grammar, word)


def generates(grammar: CFG, word: Sequence[str]) -> bool:
    """Return whether the grammar derives `word`."""
    return log_inside(grammar, word) > -math.inf


def log_inside_reference(grammar: CFG, word: Sequence[str]) -> float:
    """Return `log_inside`, computed in log space span by span: slowly, but correctly for any weights."""
    grammar = weighted(grammar)
    return float(log_inside_chart(grammar, word)[0, len(word), binarise(grammar).start])


def log_inside_chart(grammar: WeightedCFG, word: Sequence[str]) -> Floats:
    """Return the log inside weights of all spans i < j of a word, [i, j, A]."""
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
    """The binary steps by left child and the closure entries by child, both as compressed rows."""

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
