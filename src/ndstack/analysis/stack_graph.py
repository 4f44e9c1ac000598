"""The stack WFA with probabilities, and the most probable stacks (sections 4.4 and 4.5)."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from ndstack.analysis.runs import Runs
from ndstack.analysis.weights import Floats
from ndstack.automata import ROOT, Edge, Node, StackWFA
from ndstack.semirings import LOG


@dataclass(frozen=True, eq=False)
class StackGraph:
    """The stack WFA at one time, only what lies on a path to an end that counts.

    Attributes:
        wfa: weights are the logs of the inner weights gamma.
        nodes: for each state of it, the probability that it is on the path of the stack. The probabilities of
            the nodes of the current time are the reading.
        edges: for each edge of it, in its order, the same.
    """

    wfa: StackWFA[float]
    nodes: dict[Node, float]
    edges: tuple[float, ...]


def stack_graph(runs: Runs, least: float = 0.0, most: int | None = None) -> StackGraph:
    """The stack WFA at `runs.time`, for the ends that `runs` have.

    Args:
        runs: of a sequence.
        least: leave out nodes and edges whose probability is not above this.
        most: how many edges there may be; then the most probable paths are kept, each of them whole.
    """
    gamma, _, share = runs.chart.sums
    names, S, t = runs.weights.names, runs.weights.symbols, runs.time
    reached, used = _on_path(runs, share)
    kept = used > least
    if most is not None and np.count_nonzero(kept) > most:
        scores = np.where(kept, _best_paths(runs, share), 0.0)
        cut = np.partition(scores.reshape(-1), -most - 1)[-most - 1]
        # with room for rounding, so that no path is cut in two; the best path is always kept
        kept = scores > min(cut * (1 + 1e-9), scores.max() * (1 - 1e-9))

    def node(row: int, kind: int) -> Node:
        return ROOT if row == 0 else Node(row - 1, names.states[kind // S], names.symbols[kind % S])

    places = sorted(np.argwhere(kept).tolist(), key=lambda place: (place[1], place[0]))
    edges = [
        Edge(node(row, a), names.symbols[b % S], node(time + 1, b), float(gamma[row, time, a, b]))
        for row, time, a, b in places
    ]
    shares = [float(used[tuple(place)]) for place in places]
    touched = {(row, a) for row, _, a, _ in places} | {(time + 1, b) for _, time, _, b in places}
    if not runs.weights.bottom_fix and reached[1, 0] > least and (t == 0 or touched):  # the axiom
        first = node(1, 0)
        edges.insert(0, Edge(ROOT, first.symbol, first, 0.0))
        shares.insert(0, float(reached[1, 0]))
        touched |= {(0, 0), (1, 0)}
        reached[0, 0] = reached[1, 0]
    nodes = {node(*place): float(reached[place]) for place in sorted(touched)}
    accept = frozenset(one for one in nodes if one.time == t)
    return StackGraph(StackWFA(LOG, tuple(nodes), tuple(edges), accept, t), nodes, tuple(shares))


def _on_path(runs: Runs, share: Floats) -> tuple[Floats, Floats]:
    """The probability that the last stack's path has each node, [t + 2, K], and each edge."""
    t = runs.time
    reached = np.zeros((t + 2, share.shape[3]))
    used = np.zeros((t + 1, t + 1, *share.shape[2:]))
    reached[t + 1] = runs.ends.reshape(-1)
    for time in range(t, -1, -1):
        used[: time + 1, time] = share[: time + 1, time] * reached[time + 1]
        reached[: time + 1] += used[: time + 1, time].sum(axis=2)
    return reached, used


def _best_paths(runs: Runs, share: Floats) -> Floats:
    """The probability of the best path through each edge; all edges of that path have at least as much."""
    t, K = runs.time, share.shape[3]
    below, above = np.zeros((t + 2, K)), np.zeros((t + 2, K))
    below[0, 0], above[t + 1] = 1.0, runs.ends.reshape(-1)
    if not runs.weights.bottom_fix:
        below[1, 0] = 1.0
    for time in range(t + 1):
        best = (share[: time + 1, time] * below[: time + 1, :, None]).max(axis=(0, 1))
        below[time + 1] = np.maximum(below[time + 1], best)
    scores = np.zeros((t + 1, t + 1, K, K))
    for time in range(t, -1, -1):
        steps = share[: time + 1, time] * above[time + 1]
        above[: time + 1] = np.maximum(above[: time + 1], steps.max(axis=2))
        scores[: time + 1, time] = steps * below[: time + 1, :, None]
    return scores


@dataclass(frozen=True)
class StackProbability:
    """A state and a stack of symbols, bottom first, and the probability that a run ends so."""

    state: int
    stack: tuple[int, ...]
    probability: float


def most_probable_stacks(runs: Runs, k: int, limit: int = 1000) -> list[StackProbability]:
    """The k most probable pairs of state and stack at `runs.time`, most probable first.

    Runs that end with the same stack are added up, however it came about. Stacks are opened from the top; the
    probability of all stacks with the same upper part bounds that of each, so none is missed. Where the
    distribution is so flat that `limit` upper parts have been opened, the list may be shorter.
    """
    share, S = runs.chart.sums[2], runs.weights.symbols
    rows, K = runs.time + 1, share.shape[3]
    below = share[:rows, :rows].transpose(0, 2, 1, 3).reshape(rows * K, rows * K)
    number = itertools.count()
    # (-probability, tie-breaker, state, symbols from the top, the nodes [time, type] they lead down to)
    heap: list[tuple[float, int, int, tuple[int, ...], Floats | None]] = []
    for kind, mass in enumerate(runs.ends.reshape(-1).tolist()):
        if mass > 0:
            nodes = np.zeros((rows, K))
            nodes[runs.time, kind] = mass
            heap.append((-mass, next(number), kind // S, (kind % S,), nodes))
    heapq.heapify(heap)
    found: list[StackProbability] = []
    while heap and len(found) < k and limit:
        negative, _, state, upper, under = heapq.heappop(heap)
        if under is None:
            found.append(StackProbability(state, upper[::-1], -negative))
            continue
        limit -= 1
        standing = (below @ under.reshape(-1)).reshape(rows, K)
        whole = standing[0, 0] if runs.weights.bottom_fix else under[0, 0]
        if whole > 0:
            heapq.heappush(heap, (-float(whole), next(number), state, upper, None))
        for x in range(S):
            nodes = np.zeros((rows, K))
            nodes[:-1, x::S] = standing[1:, x::S]
            mass = float(nodes.sum())
            if mass > 0:
                heapq.heappush(heap, (-mass, next(number), state, (*upper, x), nodes))
    return found
