"""Lang's chart of one sequence, and how each of its entries is composed of others.

Every run has one derivation in the grammar that Lang's algorithm parses with (section 7.2):

    alpha(t,b)          -> alpha(i,a) gamma(i,a -> t,b)                            (i,a) is below the top
    gamma(t-1,a -> t,b) -> push[a -> b]
    gamma(i,a -> t,b)   -> gamma(i,a -> t-1,d) replace[d -> b]
    gamma(i,a -> t,b)   -> gamma(i,a -> k,c) gamma(k,c -> t-1,d) pop[d -> r]       b = (r,y), c = (u,y)

With a window, or without the bottom fix, the chart lacks some entries; the runs are those that remain.
"""

import dataclasses
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndstack.analysis.stack_run import Action
from ndstack.analysis.transition_weights import Floats, TransitionWeights

Item = tuple[int, ...]
"""An entry of the chart: alpha(t, b) is (t, b), and gamma(i, a -> t, b) is (i + 1, t, a, b)."""
Leaf = tuple[int, Action, int, int]
"""A transition: time, action, and the configuration types before and after it; after a pop, only the state
matters."""


class DerivationChart:
    """The charts of one sequence, each computed when it is first needed.

    Attributes:
        weights: the weights of the transitions.
        best: the chart (gamma, alpha) of the Viterbi semiring.
        sums: the chart (gamma, alpha, shares) of the log semiring. A share is the probability, given the
            configuration type (t, b), that the configuration type below the top symbol is (i, a).
    """

    def __init__(self, weights: TransitionWeights) -> None:
        self.weights = weights
        self._options: dict[Item, tuple[Floats, NDArray[np.intp]]] = {}

    @cached_property
    def sums(self) -> tuple[Floats, Floats, Floats]:
        """Log weights, and shares."""
        return self._run(False)

    @cached_property
    def best(self) -> tuple[Floats, Floats]:
        """Greatest log weights."""
        return self._run(True)[:2]

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Whether a share is greater than 0 for some type on top: [time, row, type below]."""
        from ndstack.analysis.stack_wfa_loops import find_live

        found: NDArray[np.bool_] = find_live(self.sums[2])
        return found

    @cached_property
    def best_below(self) -> Floats:
        """The probability of the best path from each configuration type down to the bottom, [n + 2, K]."""
        from ndstack.analysis.stack_wfa_loops import best_below

        found: Floats = best_below(self.sums[2], self.weights.steps, self.weights.bottom_fix)
        return found

    @cached_property
    def counts(self) -> Floats:
        """The logs of the numbers of runs, [n + 2, K]."""
        w = self.weights
        ones = [np.where(array > -np.inf, 0.0, -np.inf) for array in (w.push, w.replace, w.pop)]
        counting = DerivationChart(dataclasses.replace(w, push=ones[0], replace=ones[1], pop=ones[2]))
        return counting.sums[1]

    def setting(self) -> tuple[int, int, int, int]:
        """Return |Q|, |Γ|, the window and the first row."""
        w = self.weights
        window = w.steps + 1 if w.window is None else w.window
        return w.states, w.symbols, window, 0 if w.bottom_fix else 1

    def _run(self, best: bool) -> tuple[Floats, Floats, Floats]:
        from ndstack.analysis.chart_loops import (
            inner_and_forward_weights,
        )  # imported here because numba takes long

        found: tuple[Floats, Floats, Floats] = inner_and_forward_weights(
            *self.weights.flat(), *self.setting(), best
        )
        return found

    def terms(self, item: Item, best: bool) -> Floats:
        """Return the log weight of every term of an item, in the order of the numbers that `parts` takes."""
        gamma, alpha = self.best if best else self.sums[:2]
        if len(item) == 2:
            t, b = item
            sources: Floats = alpha[: t + 1] + gamma[: t + 1, t, :, b]
            return sources.reshape(-1)
        row, t, a, b = item
        S = self.weights.symbols
        r, y = divmod(b, S)
        _, replace, pop = self.weights.flat()
        kept = gamma[row, t - 1, a] + replace[t - 1, :, b]
        under = gamma[row, row : t - 1, a, y::S]  # [k, u]
        above = gamma[row + 1 : t, t - 1, y::S]  # [k, u, d]
        popped = under[:, :, None] + above + pop[t - 1, :, r]
        return np.concatenate([kept, popped.reshape(-1)])

    def options(self, item: Item) -> tuple[Floats, NDArray[np.intp]]:
        """Return the nonzero terms of an item in the Viterbi chart, greatest first, and their numbers."""
        if item not in self._options:
            scores = self.terms(item, True)
            order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores > -np.inf)]
            self._options[item] = scores[order], order
        return self._options[item]

    def parts(self, item: Item, number: int) -> tuple[tuple[Item, ...], Leaf | None]:
        """Return the items in the term of this number, the last in time first, and its transition."""
        S, K = self.weights.symbols, self.weights.states * self.weights.symbols
        if len(item) == 2:
            t, b = item
            row, a = divmod(number, K)
            return ((row, t, a, b), (row - 1, a)), None
        row, t, a, b = item
        if number < K:
            return ((row, t - 1, a, number),), (t, "replace", number, b)
        rest, d = divmod(number - K, K)
        k, u = divmod(rest, self.weights.states)
        k, c = k + row, u * S + b % S
        return ((k + 1, t - 1, c, d), (row, k, a, c)), (t, "pop", d, b)
