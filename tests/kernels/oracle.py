"""Every run of a restricted pushdown automaton, enumerated one by one in plain Python.

The definitions of chapters 4, 8 and 9 word for word, with stacks as tuples; nothing is shared with
the package. With a window (section 7.2) a run counts as long as each of its stack elements was
derived within the window: an element standing on the configuration of time i is lost at time t if
t - i > D while it is on top or about to be used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

Element = tuple[int, int, int]  # symbol, step at which it was pushed, time of the one below it


def _moves(
    state: int,
    stack: tuple[Element, ...],
    t: int,
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    fixed: bool,
) -> Iterator[tuple[int, tuple[Element, ...], Tensor]]:
    """What one configuration can become at step t (from 1), with the log weight of each move."""
    top, rest = stack[-1], stack[:-1]
    states, symbols = push.shape[1], push.shape[2]
    touchable = fixed or top[1] != 0  # chapter 4: the initial bottom is neither replaced ...
    for r in range(states):
        for y in range(symbols):
            weight = push[t - 1, state, top[0], r, y]
            yield r, (*stack, (y, t, t - 1)), weight
            if touchable:
                yield r, (*rest, (y, top[1], top[2])), replace[t - 1, state, top[0], r, y]
        if rest and (fixed or rest[-1][1] != 0):  # ... nor uncovered
            yield r, rest, pop[t - 1, state, top[0], r]


def enumerate_runs(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    *,
    window: int | None = None,
    bottom_fix: bool = True,
) -> list[list[tuple[int, tuple[Element, ...], Tensor]]]:
    """All runs of one sequence after steps 1..n: (state, stack, log weight).

    Args:
        push: [n, Q, S, Q, S], and the others accordingly.
    """
    runs = [(0, ((0, 0, -1),), push.new_zeros(()))]
    history = []
    for t in range(1, push.shape[0] + 1):
        runs = [
            (r, stack, weight + more)
            for state, before, weight in runs
            for r, stack, more in _moves(state, before, t, push, replace, pop, bottom_fix)
            if more != -math.inf
        ]
        if window is not None:
            runs = [run for run in runs if t - run[1][-1][2] <= window]
        history.append(runs)
    return history


def read(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    *,
    vectors: Tensor | None = None,
    bottom: Tensor | None = None,
    window: int | None = None,
    bottom_fix: bool = True,
) -> tuple[Tensor, Tensor]:
    """Readings and attention of a batch, differentiable: [B, n, Q, S(, m)], [B, n, Q, S, n+1]."""
    readings, attentions = [], []
    states, symbols = push.shape[2:4]
    for b in range(push.shape[0]):
        history = enumerate_runs(push[b], replace[b], pop[b], window=window, bottom_fix=bottom_fix)
        for runs in history:
            groups = defaultdict(list)
            for state, stack, weight in runs:
                groups[state, stack[-1][0], stack[-1][1]].append(weight)
            cells = {key: torch.stack(weights).logsumexp(0) for key, weights in groups.items()}
            total = torch.stack(list(cells.values())).logsumexp(0) if cells else None
            mass = push.new_zeros(states, symbols, push.shape[1] + 1)
            for (r, y, j), weight in cells.items():
                one = torch.zeros_like(mass)
                one[r, y, j] = 1.0
                mass = mass + one * (weight - total).exp()
            share = mass.sum(-1, keepdim=True)
            attentions.append(mass / share.clamp(min=1e-300))
            if vectors is None:
                readings.append(share.squeeze(-1))
            else:
                low = torch.zeros_like(vectors[b, :1, 0]) if bottom is None else bottom
                table = torch.cat([low.expand(1, vectors.shape[-1]), vectors[b]])
                readings.append(mass @ table)
    shape = push.shape[:2]
    return (
        torch.stack(readings).unflatten(0, shape),
        torch.stack(attentions).unflatten(0, shape),
    )
