"""The stack WFA with marginal probabilities, and the most probable stacks (sections 4.4 and 4.5)."""

from dataclasses import dataclass

import numpy as np

from ndstack.analysis.stack_runs import StackRuns
from ndstack.automata import ROOT, Edge, Node, StackWFA
from ndstack.semirings import LOG


@dataclass(frozen=True, eq=False)
class StackWFAMarginals:
    """The part of the stack WFA at one time that lies on paths to its accept states.

    Attributes:
        wfa: the stack WFA; the weights of its edges are log inner weights.
        nodes: the probability that each node is on the path of the stack. The probabilities of the nodes of
            the current time are the reading.
        edges: the probability that each edge of `wfa`, in its order, is on the path of the stack.
    """

    wfa: StackWFA[float]
    nodes: dict[Node, float]
    edges: tuple[float, ...]


def stack_wfa_marginals(runs: StackRuns, least: float = 0.0, most: int | None = None) -> StackWFAMarginals:
    """Return the stack WFA at `runs.time`, whose accept states are the ends of these runs.

    Args:
        runs: the runs of a sequence.
        least: nodes and edges are left out if their probability is not greater than this.
        most: the largest number of edges. If there are more, the most probable paths are kept, each as a
        whole.
    """
    names, S, t = runs.weights.names, runs.weights.symbols, runs.time
    reached, found = marginal_numbers(runs, least, most)

    def node(place: NodeNumbers) -> Node:
        row, kind = place
        return ROOT if row == 0 else Node(row - 1, names.states[kind // S], names.symbols[kind % S])

    edges = tuple(
        Edge(node(below), names.symbols[above[1] % S], node(above), weight)
        for below, above, weight, _ in found
    )
    nodes = {node(place): p for place, p in reached.items()}
    accept = frozenset(one for one in nodes if one.time == t)
    wfa = StackWFA(LOG, tuple(nodes), edges, accept, t)
    return StackWFAMarginals(wfa, nodes, tuple(share for *_, share in found))


NodeNumbers = tuple[int, int]
"""A node as numbers: its time + 1, and its configuration type q S + x. The root has time -1."""
EdgeNumbers = tuple[NodeNumbers, NodeNumbers, float, float]
"""The nodes below and above a symbol of a stack, the log inner weight, and the probability."""


def marginal_numbers(
    runs: StackRuns, least: float, most: int | None
) -> tuple[dict[NodeNumbers, float], list[EdgeNumbers]]:
    """Return the probabilities of nodes, and the edges; see `stack_wfa_marginals`."""
    from ndstack.analysis.stack_wfa_loops import on_path

    gamma, _, share = runs.chart.sums
    reached, found, sizes = on_path(
        share,
        runs.chart.live,
        runs.chart.best_below,
        runs.ends.reshape(-1),
        runs.time,
        least,
        -1 if most is None else most,
    )
    order = np.lexsort((found[:, 3], found[:, 2], found[:, 0], found[:, 1]))
    row, time, a, b = found[order].T
    weights = gamma[row, time, a, b].tolist()
    below = list(zip(row.tolist(), a.tolist(), strict=True))
    above = list(zip((time + 1).tolist(), b.tolist(), strict=True))
    edges = list(zip(below, above, weights, sizes[order].tolist(), strict=True))
    touched = {*below, *above}
    if not runs.weights.bottom_fix and reached[1, 0] > least and (runs.time == 0 or touched):  # the axiom
        edges.insert(0, ((0, 0), (1, 0), 0.0, float(reached[1, 0])))
        touched |= {(0, 0), (1, 0)}
        reached[0, 0] = reached[1, 0]
    return {place: float(reached[place]) for place in sorted(touched)}, edges


@dataclass(frozen=True)
class StackProbability:
    """A state and a stack, and the probability that a run ends with them.

    Attributes:
        state: the number of the state.
        stack: the numbers of the stack symbols, bottom first.
        probability: the probability that a run ends with this state and stack.
        whole: whether `stack` is a whole stack. If not, it is the upper part of several, and the probability
            is that of all of them together.
    """

    state: int
    stack: tuple[int, ...]
    probability: float
    whole: bool = True


def most_probable_stacks(
    runs: StackRuns, k: int, limit: int = 100_000_000, *, parts: bool = False
) -> list[StackProbability]:
    """Return the k most probable pairs of state and stack at `runs.time`, the most probable first.

    The probability of a stack is the sum over all runs that end with it. Stacks are extended from the top
    down; the probability of all stacks with the same upper part is a bound for each of them, so none is
    missed. If the distribution is so flat that this takes more than `limit` multiplications, the list is
    shorter; with `parts`, it is then completed with the most probable upper parts of the other stacks.
    """
    from ndstack.analysis.stack_wfa_loops import search_stacks

    share, S, fix = runs.chart.sums[2], runs.weights.symbols, runs.weights.bottom_fix
    found = search_stacks(share, runs.chart.live, runs.ends.reshape(-1), runs.time, S, fix, k, limit)
    mass, parent, symbol, kind = (part.tolist() for part in found)
    wanted = [one for one in range(len(mass)) if kind[one] == 3 or (parts and kind[one] % 2 == 0)]
    return [
        _stack(one, mass[one], parent, symbol, S, kind[one] >= 2)
        for one in sorted(wanted, key=lambda one: -mass[one])[:k]
    ]


def _stack(
    one: int, probability: float, parent: list[int], symbol: list[int], S: int, whole: bool
) -> StackProbability:
    """Return the stack of an entry of the search, from its bottom to its top."""
    stack, first = [], one
    while one >= 0:
        if symbol[one] >= 0:
            stack.append(symbol[one])
        one, first = parent[one], one
    return StackProbability(first // S, tuple(stack), probability, whole)
