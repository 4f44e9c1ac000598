"""All runs of the differentiable WPDA on one sequence: best, sampled, posterior, entropy (section 11.2.1).

A run is decomposed from its end (`ndstack.analysis.derivation_chart`), by the greatest terms of the Viterbi
chart, or at random with the terms of the log chart as probabilities.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from ndstack.analysis.derivation_chart import DerivationChart, Item, Leaf
from ndstack.analysis.stack_run import Move, StackRun
from ndstack.analysis.transition_weights import Floats, Posterior, TransitionWeights, shares
from ndstack.analysis.viterbi import close_determined_items, derivations_by_weight, expand_item
from ndstack.errors import NdstackError
from ndstack.grammars.graphs import Linked, elements
from ndstack.grammars.length_sampling import Random
from ndstack.html_tables import table

SHOWN = 5
"""The number of runs that a notebook shows."""


class StackRuns:
    """The runs of one sequence that end at some time in some configuration types; by default, all runs.

    Attributes:
        weights: the weights of the transitions.
        time: the number of steps of each run.
        end: the configuration types (state, symbol) in which they end, or None for any.
    """

    def __init__(self, weights: TransitionWeights) -> None:
        self.weights = weights
        self.time = weights.steps
        self.end: frozenset[tuple[int, int]] | None = None
        self.chart = DerivationChart(weights)

    def _repr_html_(self) -> str:
        if self.log_weight == -math.inf:
            return table([], (), f"no run survives to time {self.time}")
        rows = [
            (number, one.probability, " ".join(one.stacks()[-1]))
            for number, one in enumerate(self.k_best(SHOWN), 1)
        ]
        caption = f"runs to time {self.time}, entropy {self.entropy():.5g} nats; the most probable ones:"
        return table(rows, ("", "probability", "last stack, top last"), caption)

    def at(self, time: int | None = None, end: Iterable[tuple[int, int]] | None = None) -> StackRuns:
        """Return the runs to an earlier time, with any end or with one of those given; charts are shared."""
        time = self.time if time is None else time
        if not 0 <= time <= self.weights.steps:
            raise NdstackError(f"time {time} given, expected 0 to {self.weights.steps}, the number of steps")
        found = StackRuns.__new__(StackRuns)
        found.weights, found.chart, found.time = self.weights, self.chart, time
        found.end = None if end is None else frozenset(end)
        for state, symbol in found.end or ():
            if not (0 <= state < self.weights.states and 0 <= symbol < self.weights.symbols):
                raise NdstackError(f"the automaton has no configuration type {(state, symbol)}")
        return found

    def accepting(self) -> StackRuns:
        """Return the runs to the same time that accept."""
        if self.weights.accept is None:
            raise NdstackError("the model has no accept states; only compiled recognisers have them")
        return self.at(end=self.weights.accept)

    def _ends(self, alpha: Floats) -> Floats:
        """Return alpha[t, .], with -inf for the types in which runs must not end, [K]."""
        row: Floats = alpha[self.time + 1]
        if self.end is None:
            return row
        kept = np.full(row.shape, -np.inf)
        for state, symbol in self.end:
            b = state * self.weights.symbols + symbol
            kept[b] = row[b]
        return kept

    @property
    def log_weight(self) -> float:
        """The log of the total weight of the runs; -inf if there are none."""
        return float(np.logaddexp.reduce(self._ends(self.chart.sums[1])))

    @property
    def ends(self) -> Floats:
        """The probability of each configuration type at the end, [Q, S]; for any end, this is the reading."""
        logs = self._ends(self.chart.sums[1])
        return shares(logs[None]).reshape(self.weights.states, self.weights.symbols)

    @property
    def log_count(self) -> float:
        """The log of the number of runs of non-zero weight."""
        return float(np.logaddexp.reduce(self._ends(self.chart.counts)))

    def count(self) -> int:
        """Return the number of runs of nonzero weight: exact up to 10^12, about 12 digits beyond that."""
        log = self.log_count
        if log > 700:
            raise NdstackError(f"there are about 10^{log / math.log(10):.0f} runs, more than a float holds")
        return round(math.exp(log))

    def best(self) -> StackRun:
        """Return the run of greatest weight (Viterbi)."""
        found = next(self.in_order(), None)
        if found is None:
            raise NdstackError(f"no run survives to time {self.time} with the end asked for")
        return found

    def k_best(self, k: int) -> list[StackRun]:
        """Return the k runs of greatest weight, the greatest first; all of them if there are fewer."""
        return list(itertools.islice(self.in_order(), k))

    def in_order(self) -> Iterator[StackRun]:
        """Yield all runs, the run of greatest weight first."""
        total, ends = self.log_weight, self._ends(self.chart.best[1])
        for leaves in derivations_by_weight(self.chart, self.time, ends):
            yield self._run(leaves, total)

    def sample(self, count: int, rng: Random) -> list[StackRun]:
        """Return independent samples of the posterior; `rng` is numpy's `Generator` or a `random.Random`."""
        total = self.log_weight
        if total == -math.inf:
            raise NdstackError(f"no run survives to time {self.time} with the end asked for")
        first = np.cumsum(self.ends.reshape(-1))
        bounds: dict[Item, Floats] = {}
        found = []
        for _ in range(count):
            open_, leaves = close_determined_items(((self.time, _draw(first, rng)), None), None)
            while open_ is not None:
                item = open_[0]
                if item not in bounds:
                    terms = self.chart.terms(item, False)
                    bounds[item] = np.cumsum(np.exp(terms - terms.max()))
                open_, leaves = close_determined_items(
                    *expand_item(self.chart, (open_, leaves), _draw(bounds[item], rng))
                )
            found.append(self._run(leaves, total))
        return found

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior probability of every transition at every step."""
        from ndstack.analysis.chart_loops import transition_posteriors

        n, w = self.time, self.weights
        _, replace, pop = w.flat()
        gamma, alpha, share = (part[: n + 2] for part in self.chart.sums)
        ends = self.ends.reshape(-1)
        push, replace, pop = transition_posteriors(
            replace[:n], pop[:n], *self.chart.setting(), gamma, alpha, share, ends
        )
        Q, S = w.states, w.symbols
        return Posterior(push.reshape(n, Q, S, Q, S), replace.reshape(n, Q, S, Q, S), pop.reshape(n, Q, S, Q))

    def entropy(self) -> float:
        """Return the entropy of the posterior over runs, in nats: log Z - Σ p(run) log weight(run)."""
        total = self.log_weight
        if total == -math.inf:
            raise NdstackError(f"no run survives to time {self.time} with the end asked for")
        expected = 0.0
        for name in ("push", "replace", "pop"):
            shares, logs = getattr(self.posterior, name), getattr(self.weights, name)[: self.time]
            used = shares > 0
            expected += float(shares[used] @ logs[used])
        return max(0.0, total - expected)

    def _run(self, leaves: Linked[Leaf], total: float) -> StackRun:
        w, moves = self.weights, []
        for time, action, source, target in elements(leaves):
            (q, x), (r, y) = divmod(source, w.symbols), divmod(target, w.symbols)
            if action == "pop":
                moves.append(Move(time, action, q, x, r, None, float(w.pop[time - 1, q, x, r])))
            else:
                table = w.push if action == "push" else w.replace
                moves.append(Move(time, action, q, x, r, y, float(table[time - 1, q, x, r, y])))
        moves.sort(key=lambda move: move.time)
        weight = math.fsum(move.log_weight for move in moves)
        return StackRun(tuple(moves), w.names, weight, weight - total)


def _draw(bounds: Floats, rng: Random) -> int:
    """Return a random index, given cumulative weights; never one of weight 0."""
    place = np.searchsorted(bounds, rng.random() * bounds[-1], side="right")
    return int(min(place, np.searchsorted(bounds, bounds[-1])))
