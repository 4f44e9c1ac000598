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
    from ndstack.analysis.stack_wfa_loops import on_path

    gamma, _, share = runs.chart.sums
    names, S, t = runs.weights.names, runs.weights.symbols, runs.time
    reached, found, sizes = on_path(
        share, runs.chart.best_below, runs.ends.reshape(-1), t, least, -1 if most is None else most
    )
    order = np.lexsort((found[:, 3], found[:, 2], found[:, 0], found[:, 1]))
    places, shares = found[order].tolist(), sizes[order].tolist()

    def node(row: int, kind: int) -> Node:
        return ROOT if row == 0 else Node(row - 1, names.states[kind // S], names.symbols[kind % S])

    edges = [
        Edge(node(row, a), names.symbols[b % S], node(time + 1, b), float(gamma[row, time, a, b]))
        for row, time, a, b in places
    ]
    touched = {(row, a) for row, _, a, _ in places} | {(time + 1, b) for _, time, _, b in places}
    if not runs.weights.bottom_fix and reached[1, 0] > least and (t == 0 or touched):  # the axiom
        first = node(1, 0)
        edges.insert(0, Edge(ROOT, first.symbol, first, 0.0))
        shares.insert(0, float(reached[1, 0]))
        touched |= {(0, 0), (1, 0)}
        reached[0, 0] = reached[1, 0]
    nodes = {node(*place): float(reached[place]) for place in sorted(touched)}
    accept = frozenset(one for one in nodes if one.time == t)
    return StackWFAMarginals(StackWFA(LOG, tuple(nodes), tuple(edges), accept, t), nodes, tuple(shares))


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

    share, S = runs.chart.sums[2], runs.weights.symbols
    found = search_stacks(share, runs.ends.reshape(-1), runs.time, S, runs.weights.bottom_fix, k, limit)
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
