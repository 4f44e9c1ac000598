"""Lang's algorithm by blocks of time steps, in torch operations.

For a block T = t0+1 .. t0+m of steps, with every weight of step t divided by e^{c_t} (see `weights`),

    g[t-1, t] = push_t;   z[k, t] = g[k, t-1] pop_t                                        t0 <= k < t-1
    g[i, t]   = g[i, t-1] replace_t + sum_{i < k < t-1} g[i, k] z[k, t]                    t0 <= i < t-1
    R[i, t0]  = P_t0[i] alpha_t0;   X[k, t] = R[k, t-1] pop_t                              i, k < t0
    R[i, t]   = R[i, t-1] replace_t + sum_{i < k < t0} P_k[i] X[k, t] + sum_{t0 <= k < t-1} R[i, k] z[k, t]
    alpha_t   = sum_{i < t0} R[i, t] + sum_{t0 <= i < t} alpha_i g[i, t]

from which P_t = R[., t] / alpha_t and, for the rows of the block, alpha_i g[i, t] / alpha_t. Rows i < t0 go
by strips, from the newest to the oldest, so that X is known when it is used: for the k of newer strips the
sum is one product of matrices for all steps of the block. g and z depend on the weights alone, so those of
all blocks are computed side by side. A single step is a block of one.

With a window, rows that do not count any more at some step are left out of alpha and of the chart; no row
that counts depends on them.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable.store import NEG, Store, rows_of
from ndstack.ops.nondeterministic.portable.weights import Actions, Scaled, scaled

BLOCK = 16
"""How many time steps make a block."""
STRIP = 20
"""How many rows of the chart make a strip, at least."""


class Inner(NamedTuple):
    """What happens inside blocks of m steps.

    Attributes:
        rows: [B, S, (m + 1) Q, m K], g[i, t0 + n][a, (y, u)] at (n, u), (i - t0, a).
        uses: [B, S, m Q, m Q], z[k, t0 + n][(y, u), r] at (n - 1, r), (k - t0, u).
    """

    rows: Tensor
    uses: Tensor


class Older(NamedTuple):
    """What a block of m steps makes of the rows before it, those of positions `base` .. t0.

    Attributes:
        rows: [B, S, (m + 1) Q, J K], R.
        uses: [B, S, m Q, t0 Q], X.
    """

    rows: Tensor
    uses: Tensor


class Kernels(Protocol):
    """The two parts that go step by step, which a backend may do in its own way."""

    def inner_rows(self, weights: Scaled, states: int, symbols: int) -> Inner:
        """g and z of blocks, each with the weights of all its m steps."""

    def strip_rows(
        self, store: Store, leave: Tensor, uses: Tensor, older: Older, newer: Tensor, strip: tuple[int, ...]
    ) -> None:
        """R and X for the rows of a strip.

        Args:
            leave: [B, m, Q + K, K], scaled weights.
            uses: z, [B, S, m Q, m Q].
            older: whose rows at time t0 are given, and the others are to be found.
            newer: [B, S, m Q, ...], what pops to newer strips contribute to R.
            strip: the first position, the one after the last, and the first position of `older`.
        """


class Block(NamedTuple):
    """What `lost_mass` has to know about a block of m steps.

    Attributes:
        inner, older: its numbers, relative to time t0.
        alpha: [B, m + 1, K], relative to time t0.
        least: [B, m], the logarithms of its smallest weights.
    """

    inner: Inner
    older: Older
    alpha: Tensor
    least: Tensor


class TorchKernels:
    """Both parts in torch operations."""

    def inner_rows(self, weights: Scaled, states: int, symbols: int) -> Inner:
        """g and z."""
        batch, steps, kinds, _ = weights.push.shape
        rows = weights.push.new_zeros(batch, symbols, (steps + 1) * states, steps * kinds)
        uses = weights.push.new_zeros(batch, symbols, steps * states, steps * states)
        for n in range(1, steps + 1):
            own = rows_of(rows, states, n, n + 1)
            push = weights.push[:, n - 1].mT.reshape(batch, symbols, states, kinds)
            own[..., (n - 1) * kinds : n * kinds] = push
            if n == 1:
                continue
            known = slice(0, (n - 1) * kinds)
            before = rows_of(rows, states, n - 1, n)[..., known].reshape(batch, kinds, -1)
            left = weights.leave[:, n - 1] @ before
            popped = rows_of(uses, states, n - 1, n)[..., : (n - 1) * states]
            popped.copy_(by_symbol(left[:, :states], states, symbols))
            column = left[:, states:].view(batch, symbols, states, -1)
            if n > 2:
                column = column + popped @ rows[:, :, : (n - 1) * states, known]
            own[..., known] = column
        return Inner(rows, uses)

    def strip_rows(
        self, store: Store, leave: Tensor, uses: Tensor, older: Older, newer: Tensor, strip: tuple[int, ...]
    ) -> None:
        """R and X for the rows of a strip, step by step."""
        states, symbols, kinds = store.automaton.states, store.automaton.symbols, store.automaton.kinds
        first, last, base = strip
        batch, steps = leave.shape[:2]
        width = (last - first) * kinds
        place = older.rows[..., (first - base) * kinds : (last - base) * kinds]
        rows = place.flatten(0, 1)
        oldest = max(first - 1, 0)  # k of the first column that can be uncovered here
        columns = slice(oldest * states, (last - 1) * states)
        known = store.columns[:, :, columns, first * kinds : last * kinds].flatten(0, 1)
        popped, inner = older.uses[..., columns].flatten(0, 1), uses.flatten(0, 1)
        newer = newer.flatten(0, 1)
        before = rows[:, :states].reshape(batch, kinds, width)
        for n in range(1, steps + 1):
            here = slice((n - 1) * states, n * states)
            left = torch.bmm(leave[:, n - 1], before)
            uncovered = left[:, :states, (oldest + 1 - first) * kinds :]
            popped[:, here].view(batch, symbols, states, -1).copy_(by_symbol(uncovered, states, symbols))
            column = torch.baddbmm(newer[:, here], popped[:, here], known)
            if n > 1:
                past = slice(0, (n - 1) * states)
                column.baddbmm_(inner[:, here, past], rows[:, past])
            before = left[:, states:].add_(column.view(batch, kinds, width))
            rows_of(place, states, n, n + 1).copy_(before.view(batch, symbols, states, width))


def by_symbol(popped: Tensor, states: int, symbols: int) -> Tensor:
    """[B, r, (k, y, u)] as [B, y, r, (k, u)]."""
    batch, width = popped.shape[0], popped.shape[2] // symbols
    return popped.view(batch, states, -1, symbols, states).permute(0, 3, 1, 2, 4).reshape(
        batch, symbols, states, width
    )  # fmt: skip


def older_rows(store: Store, start: int, weights: Scaled, inner: Inner, kernels: Kernels) -> Older:
    """R and X of the block after time `start`, strip by strip."""
    at, columns = store.automaton, store.columns
    states, kinds = at.states, at.kinds
    batch, steps = weights.push.shape[:2]
    base, end = at.low(start + 1), start + 1
    rows = columns.new_empty(batch, at.symbols, (steps + 1) * states, (end - base) * kinds)
    alpha = store.log_alpha[:, start].exp().to(columns.dtype).view(batch, at.symbols, states, 1)
    rows[:, :, :states] = rows_of(columns, states, start, end)[..., base * kinds : end * kinds] * alpha
    older = Older(rows, columns.new_zeros(batch, at.symbols, steps * states, start * states))
    for first, last in strips(base, end, steps):
        here = slice(first * kinds, last * kinds)
        later = slice((last - 1) * states, start * states)
        newer = older.uses[..., later] @ columns[:, :, later, here]
        kernels.strip_rows(store, weights.leave, inner.uses, older, newer, (first, last, base))
    return older


def strips(base: int, end: int, steps: int) -> list[tuple[int, int]]:
    """The strips of positions base .. end - 1, from the newest to the oldest; one for a single step."""
    count = 1 if steps == 1 else max(1, round((end - base) / STRIP))
    borders = [base + (end - base) * j // count for j in range(count + 1)]
    return [(borders[j], borders[j + 1]) for j in range(count - 1, -1, -1)]


def run_block(store: Store, start: int, weights: Scaled, inner: Inner, kernels: Kernels) -> Block:
    """The block of steps after time `start`: columns, log alpha, log totals and floors are written."""
    at = store.automaton
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, steps = weights.push.shape[:2]
    older = older_rows(store, start, weights, inner, kernels)
    rows = older.rows[:, :, states:].view(batch, symbols, steps, states, -1)
    base, wide = at.low(start + 1), store.log_alpha.dtype
    for n in range(2, steps + 1 if at.window is not None else 0):  # rows that do not count any more
        rows[:, :, n - 1, :, : (min(at.low(start + n), start + 1) - base) * kinds] = 0.0
    sums = rows.sum(-1, dtype=wide).transpose(1, 2).reshape(batch, steps, kinds)
    alpha = _alpha(store, start, inner, sums)
    share = torch.where(alpha > 0, alpha.reciprocal(), 0.0)
    scale = share[:, 1:].view(batch, steps, symbols, states, 1).transpose(1, 2)
    new = rows_of(store.columns, states, start + 1, start + 1 + steps)
    new = new.view(batch, symbols, steps, states, -1)
    torch.mul(rows, scale.to(rows.dtype), out=new[..., base * kinds : (start + 1) * kinds])
    block = inner.rows[:, :, states:].view(batch, symbols, steps, states, steps, kinds)
    joint = block * alpha[:, None, None, None, :-1].to(rows.dtype)
    joint = (joint * scale[..., None].to(rows.dtype)).flatten(-2)
    new[..., (start + 1) * kinds : (start + 1 + steps) * kinds] = joint
    _write_logs(store, start, alpha, weights.growth)
    return Block(inner, older, alpha, weights.least)


def _alpha(store: Store, start: int, inner: Inner, sums: Tensor) -> Tensor:
    """alpha of the times t0 .. t0 + m, [B, m + 1, K], relative to time t0: a triangular system.

    Args:
        sums: [B, m, K], of R.
    """
    states, symbols, kinds = store.automaton.states, store.automaton.symbols, store.automaton.kinds
    batch, steps = sums.shape[:2]
    first = store.log_alpha[:, start].exp()
    block = inner.rows[:, :, states:].view(batch, symbols, steps, states, steps * kinds)
    block = block.transpose(1, 2).reshape(batch, steps * kinds, steps * kinds).to(sums.dtype)
    given = sums.reshape(batch, -1, 1) + block[..., :kinds] @ first[..., None]
    if steps > 1:
        before = torch.nn.functional.pad(block[..., kinds:], (0, kinds))
        given = torch.linalg.solve_triangular(-before, given, upper=False, unitriangular=True)
    return torch.cat([first[:, None], given.view(batch, steps, kinds)], 1)


def _write_logs(store: Store, start: int, alpha: Tensor, growth: Tensor) -> None:
    """Log alpha, normalised, and log totals of the times after `start`."""
    here = slice(start + 1, start + alpha.shape[1])
    logs = alpha.log()
    norm = torch.logsumexp(logs, -1, keepdim=True)
    norm = norm.masked_fill(norm == NEG, 0.0)
    store.log_alpha[:, here] = (logs - norm)[:, 1:]
    store.log_total[:, here] = logs[:, 1:] - norm[:, :-1] + growth[..., None]


def prepare(
    store: Store, start: int, actions: Actions, block: int, kernels: Kernels
) -> list[tuple[int, Scaled, Inner]]:
    """The blocks of some steps: when each begins, its weights, and what happens inside."""
    at, wide = store.automaton, store.log_alpha.dtype
    batch, steps = actions.push.shape[:2]
    size = min(block, steps, steps if at.window is None else at.window)
    likely = store.log_alpha[:, start : start + 1].exp()
    weights = scaled(actions, at.symbols, likely, wide)
    count = math.ceil(steps / size)
    spare = count * size - steps
    padded = Scaled(
        torch.nn.functional.pad(weights.push, (0, 0, 0, 0, 0, spare)),
        torch.nn.functional.pad(weights.leave, (0, 0, 0, 0, 0, spare)),
        *weights[2:],
    )
    each = Scaled(
        padded.push.view(batch * count, size, *padded.push.shape[2:]),
        padded.leave.view(batch * count, size, *padded.leave.shape[2:]),
        *weights[2:],
    )
    inner = kernels.inner_rows(each, at.states, at.symbols)
    shaped = Inner(*(part.view(batch, count, *part.shape[1:]) for part in inner))
    blocks = []
    for j in range(count):
        here = slice(j * size, min((j + 1) * size, steps))
        some = here.stop - here.start
        rows = shaped.rows[:, j, :, : (some + 1) * at.states, : some * at.kinds]
        uses = shaped.uses[:, j, :, : some * at.states, : some * at.states]
        part = Scaled(*(tensor[:, here] for tensor in weights))
        blocks.append((start + here.start, part, Inner(rows, uses)))
    return blocks
