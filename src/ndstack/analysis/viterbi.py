"""The Viterbi run and its successors: all runs of one sequence in the order of their weights.

Runs are found by a best-first search over partial derivations (`ndstack.analysis.derivation_chart`). The most
that an open item can still contribute is known from the Viterbi chart, so a partial derivation is never
opened before a better one. Of equally good ones the newest is opened first, which completes a run before the
next of many equal ones is begun.
"""

import heapq
import itertools
from collections.abc import Iterator

import numpy as np

from ndstack.analysis.derivation_chart import DerivationChart, Item, Leaf
from ndstack.analysis.transition_weights import Floats
from ndstack.grammars.graphs import Linked, prepend

Derivation = tuple[Linked[Item], Linked[Leaf]]
"""The open items of a partial derivation, and its transitions."""


def derivations_by_weight(chart: DerivationChart, time: int, ends: Floats) -> Iterator[Linked[Leaf]]:
    """Yield the transitions of each run, the run of greatest weight first.

    Args:
        chart: the chart of the sequence.
        time: the number of steps of each run.
        ends: the greatest log weight of a run that ends in each configuration type, [K].
    """
    number = itertools.count(0, -1)
    # (-bound, tie-breaker, open items, transitions, the number of the option of the first open item)
    heap: list[tuple[float, int, Linked[Item], Linked[Leaf], int]] = [
        (-float(ends[b]), next(number), ((time, int(b)), None), None, 0)
        for b in np.argsort(-ends, kind="stable")
        if ends[b] > -np.inf
    ]
    heapq.heapify(heap)
    while heap:
        negative, _, open_, leaves, choice = heapq.heappop(heap)
        open_, leaves = close_determined_items(open_, leaves)
        if open_ is None:
            yield leaves
            continue
        scores, numbers = chart.options(open_[0])
        if choice + 1 < len(scores):
            worse = negative + float(scores[choice] - scores[choice + 1])
            heapq.heappush(heap, (worse, next(number), open_, leaves, choice + 1))
        rest, leaves = expand_item(chart, (open_, leaves), int(numbers[choice]))
        heapq.heappush(heap, (negative, next(number), rest, leaves, 0))


def expand_item(chart: DerivationChart, derivation: Derivation, number: int) -> Derivation:
    """Replace the first open item with the parts of its term of this number."""
    open_, leaves = derivation
    assert open_ is not None
    item, rest = open_
    parts, leaf = chart.parts(item, number)
    return prepend(parts, rest), leaves if leaf is None else (leaf, leaves)


def close_determined_items(open_: Linked[Item], leaves: Linked[Leaf]) -> Derivation:
    """Close the first open items that can be made in one way only: the start, and single pushes."""
    while open_ is not None:
        item, rest = open_
        if len(item) == 2:
            if item[0] > 0:
                break
        else:
            row, t, a, b = item
            if row < t:
                break
            if t:
                leaves = ((t, "push", a, b), leaves)
        open_ = rest
    return open_, leaves
