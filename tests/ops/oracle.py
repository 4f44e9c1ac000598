"""Every run of a restricted pushdown automaton, enumerated one by one in plain Python.

The definitions of chapters 4, 8 and 9 word for word, with stacks as tuples; nothing is shared with
the package. With a window (section 7.2) a run counts as long as each of its stack elements was
derived within the window: an element standing on the configuration of time i is lost at time t if
t - i > D while it is on top or about to be used.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

Element = tuple[int, int, int]  # symbol, step at which it was pushed, time of the one below it
Move = tuple[str, tuple[int, ...]]  # "push", "replace" or "pop", and its indices


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: where it is, its log weight, and how it came there."""

    state: int
    stack: tuple[Element, ...]
    weight: Tensor
    moves: tuple[Move, ...]

    @property
    def top(self) -> tuple[int, int]:
        """State and top symbol."""
        return self.state, self.stack[-1][0]


def _moves(
    run: Run, t: int, states: int, symbols: int, fixed: bool
) -> Iterator[tuple[int, tuple[Element, ...], Move]]:
    """What one configuration can become at step t (from 1)."""
    q, (x, pushed, below), rest = run.state, run.stack[-1], run.stack[:-1]
    touchable = fixed or pushed != 0  # chapter 4: the initial bottom is neither replaced ...
    for r in range(states):
        for y in range(symbols):
            yield r, (*run.stack, (y, t, t - 1)), ("push", (t - 1, q, x, r, y))
            if touchable:
                yield r, (*rest, (y, pushed, below)), ("replace", (t - 1, q, x, r, y))
        if rest and (fixed or rest[-1][1] != 0):  # ... nor uncovered
            yield r, rest, ("pop", (t - 1, q, x, r))


def enumerate_runs(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    *,
    window: int | None = None,
    bottom_fix: bool = True,
) -> list[list[Run]]:
    """All runs of one sequence after steps 1..n.

    Args:
        push: [n, Q, S, Q, S], and the others accordingly.
    """
    tables = {"push": push, "replace": replace, "pop": pop}
    states, symbols = push.shape[1:3]
    runs = [Run(0, ((0, 0, -1),), push.new_zeros(()), ())]
    history = []
    for t in range(1, push.shape[0] + 1):
        runs = [
            Run(r, stack, run.weight + tables[move[0]][move[1]], (*run.moves, move))
            for run in runs
            for r, stack, move in _moves(run, t, states, symbols, bottom_fix)
            if tables[move[0]][move[1]] != -math.inf
        ]
        if window is not None:
            runs = [run for run in runs if t - run.stack[-1][2] <= window]
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
            for run in runs:
                groups[(*run.top, run.stack[-1][1])].append(run.weight)
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
