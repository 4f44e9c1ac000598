"""The exact distribution of the next symbol after each prefix of a string, given a distribution over lengths.

Let Out[i, A, m] be the weight of all derivations in which the symbol A begins after the first i symbols of
the string and derives the next m, without the part below A. To the right of A there may be any string, and
the weight of a derivation of length ℓ is multiplied by c_ℓ. Then Out[0, S, ℓ] = c_ℓ, and for every rule
B → C D of weight w

    Out[i, C, m] += w Out[i, B, m + l] T[D, l]                         D derives any string of length l
    Out[i, D, m] += w Out[k, B, i - k + m] inside[k, i, C]             C derives the symbols from k to i

where T holds the weights by length. The weight of the symbol a after i symbols is Out[i, a, 1].
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.binarization import binarise
from ndstack.grammars.inside import log_inside_chart
from ndstack.grammars.length_sampling import LengthTable
from ndstack.semirings import log_or_minus_infinity

Floats = NDArray[np.float64]


def log_next_weights(table: LengthTable, word: Sequence[str], log_lengths: Mapping[int, float]) -> Floats:
    """Return the log weight of each terminal, and of the end, after each prefix of a word, [n + 1, V + 1].

    Args:
        table: the weights of the grammar by length; terminals are in the grammar's order.
        word: symbols of the grammar.
        log_lengths: log c_ℓ for the lengths that strings may have.
    """
    grammar = table.grammar
    binary, n = binarise(grammar), len(word)
    longest = max(log_lengths, default=0)
    chart = log_inside_chart(grammar, word)
    found = np.full((n + 1, len(grammar.terminals) + 1), -math.inf)
    terminals = [binary.index[a] for a in grammar.terminals]
    outer: list[Floats] = []
    for i in range(min(n, longest) + 1):
        begun = _begun(table, chart, outer, i, longest - i)
        if i == 0:
            for length, log in log_lengths.items():
                begun[binary.start, length] = log
        outer.append(_completed(table, begun))
        if longest > i:
            found[i, :-1] = outer[i][terminals, 1]
        if i in log_lengths:
            whole = chart[0, i, binary.start] if i else log_or_minus_infinity(binary.null[binary.start])
            found[i, -1] = log_lengths[i] + whole
    return found


def _begun(table: LengthTable, chart: Floats, outer: list[Floats], i: int, most: int) -> Floats:
    """Return Out[i, A, m] of the right children, [A, m], for m up to `most`."""
    steps, logs = table.binary_steps
    begun = np.full((table.size, most + 1), -math.inf)
    if i and len(logs):
        parent, left, right = steps
        terms = [chart[k, i][left][:, None] + outer[k][parent, i - k : i - k + most + 1] for k in range(i)]
        gained = np.logaddexp.reduce(np.stack(terms), axis=0) + logs[:, None]
        np.logaddexp.at(begun, right, gained)
    return begun


def _completed(table: LengthTable, begun: Floats) -> Floats:
    """Return Out[i] with the left children added, after the application of unary rules and ε-rules."""
    (parent, left, right), logs = table.binary_steps
    closure = binarise(table.grammar).closure
    log_closure = np.log(closure.weights)
    most = begun.shape[1] - 1
    lengths = table.upto(most)
    direct = np.full(begun.shape, -math.inf)
    for m in range(most, 0, -1):
        if len(logs) and m < most:
            terms = direct[parent, m + 1 :] + lengths[right, 1 : most - m + 1]
            np.logaddexp.at(begun[:, m], left, np.logaddexp.reduce(terms, axis=1) + logs)
        np.logaddexp.at(direct[:, m], closure.children, begun[closure.parents, m] + log_closure)
    return direct
