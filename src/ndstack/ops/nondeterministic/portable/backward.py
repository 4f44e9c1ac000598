"""The gradient of Lang's algorithm by blocks of time steps, in torch operations.

The equations are those of `cpu.backward`. For a block T = t0+1 .. t0+m, with G and ab given by what later
steps say about it, ab of the block is a triangular system, and then w of all its steps is known. Rows of G go
by strips, from the oldest to the newest, because

    B[r; k, u, y] of step t = E_b sum_{i < k, a} P_k[i, a | (u, y)] G_t[i, a | (r, y)]

which row k of G_{t-1} needs, is a sum over older rows: over those of older strips it is one product of
matrices for all steps of the block. At last the block tells all columns before it what it says about them, in
one product again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable.forward import by_symbol, strips
from ndstack.ops.nondeterministic.portable.store import Store, rows_of
from ndstack.ops.nondeterministic.portable.weights import Actions, StepWeights, step_weights


class Adjoint(NamedTuple):
    """Derivatives with respect to a chart: G, like its columns, and ab, [B, T + 1, K] from i = -1 on."""

    columns: Tensor
    alpha: Tensor

    @classmethod
    def zeros(cls, store: Store) -> Adjoint:
        """No derivatives yet."""
        batch, times, kinds = store.log_alpha.shape
        return cls(torch.zeros_like(store.columns), store.columns.new_zeros(batch, times + 1, kinds))


class Kernels(Protocol):
    """The part that goes step by step, which a backend may do in its own way."""

    def strip_back(
        self, room: Room, weights: StepWeights, older: Tensor, known: Tensor, strip: tuple[int, int]
    ) -> None:
        """G and B for the rows of a strip; positions are those of `room`.

        Args:
            older: [B, S, m Q, (k, u)], what older strips contribute to B / E of the strip.
            known: [B, S, (k, u), ...], the columns that can be uncovered in the strip, at its rows.
        """


class Room(NamedTuple):
    """The rows of a block of m steps that count at its first one.

    Attributes:
        rows: [B, S, (m + 1) Q, J K], G of the times t0 .. t0 + m.
        uses: [B, S, m Q, J Q], E_b A[r; k, u, y] of the steps, for position k + 1.
        uncovered: [B, m, Q, J K], B of the steps, for position k + 1.
        start: t0.
        window: D, or 0.
        base: the first of the J positions.
    """

    rows: Tensor
    uses: Tensor
    uncovered: Tensor
    start: int
    window: int
    base: int

    def low(self, n: int) -> int:
        """The first of the J positions that counts at step t0 + n."""
        return max(self.start + n - self.window + 1, 0) - self.base if self.window else 0


class TorchKernels:
    """That part in torch operations."""

    def strip_back(
        self, room: Room, weights: StepWeights, older: Tensor, known: Tensor, strip: tuple[int, int]
    ) -> None:
        """G and B for the rows of a strip, from the last step to the first."""
        (batch, steps, kinds, states), (first, last) = weights.pop.shape, strip
        symbols, width = kinds // states, (last - first) * kinds
        rows = room.rows[..., first * kinds : last * kinds].flatten(0, 1)
        older, known = older.flatten(0, 1), known.flatten(0, 1).mT
        uses = room.uses.flatten(0, 1)
        block = uses.shape[2] - steps * states  # where the block's own columns begin, position t0 + 2 first
        carry = torch.cat([weights.replace, weights.pop], -1)
        for n in range(steps, 0, -1):
            here = slice(n * states, (n + 1) * states)
            own = rows[:, here]
            if n + 1 < steps:  # not in place, which torch does matrix by matrix
                later = uses[:, (n + 1) * states :, block + n * states : block + (n + 1) * states]
                own.copy_(torch.baddbmm(own, later.mT, rows[:, (n + 2) * states :]))
            low = (room.low(n) - first) * kinds
            if low > 0:
                own[..., :low] = 0.0
            back = torch.baddbmm(older[:, here.start - states : here.stop - states], own, known)
            back = back.view(batch, symbols, states, -1, states)
            back = back * weights.uncover[:, n - 1].view(batch, symbols, states, 1, 1)
            back = back.permute(0, 2, 3, 1, 4).reshape(batch, states, -1)
            uncovered = room.uncovered[:, n - 1, :, first * kinds : last * kinds]
            uncovered[..., width - back.shape[2] :] = back
            told = torch.cat([own.reshape(batch, kinds, width), uncovered], 1)
            carried = torch.bmm(carry[:, n - 1], told)
            if low > 0:
                carried[..., :low] = 0.0
            rows[:, here.start - states : here.stop - states] += carried.view(-1, states, width)


def block_back(
    store: Store,
    start: int,
    actions: Actions,
    adjoint: Adjoint,
    grad_alpha: Tensor,
    grad_attention: Tensor | None,
    kernels: Kernels,
) -> Actions:
    """The derivatives with respect to the actions of a block; the adjoint is brought to time t0.

    Args:
        start: t0.
        adjoint: what later blocks say about the chart; changed.
        grad_alpha: [B, m, K], derivatives with respect to log alpha, from the readings.
        grad_attention: [B, m, K, positions], with respect to the attention, or None.
    """
    at, weights = store.automaton, step_weights(store, actions, start)
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, steps = actions.push.shape[:2]
    base, end = at.low(start + 1), start + steps + 1
    here = slice(base * kinds, end * kinds)
    own = rows_of(store.columns, states, start + 1, end)[..., here]
    ends = _ends(store, start, own, adjoint, grad_alpha, grad_attention)
    room = _make_room(store, start, adjoint, weights)
    _add_ends(room, store, start, ends, grad_attention)
    for first, last in reversed(strips(base, end, steps)):
        oldest, newest = max(first - 1, 0), min(last, end) - 1
        columns = store.columns[:, :, oldest * states : newest * states]
        upto = (first - base) * kinds
        older = room.rows[:, :, states:, :upto] @ columns[..., base * kinds : first * kinds].mT
        known = columns[..., first * kinds : last * kinds]
        kernels.strip_back(room, weights, older, known, (first - base, last - base))
    rows_of(adjoint.columns, states, start, end)[..., here] = room.rows
    before = _columns_before(store, start, steps)
    told = room.rows[:, :, states:].view(batch, symbols, steps, states, -1).transpose(1, 2)
    told = told.reshape(batch, steps, kinds, -1)
    _tell_earlier(store, start, adjoint, room)
    by_position = told.view(batch, steps, kinds, -1, kinds)
    place = torch.arange(steps, device=own.device)
    pushed = by_position[:, place, :, place + start + 1 - base].transpose(
        0, 1
    )  # G_t[t-1, a | b]: [B, m, b, a]
    return Actions(
        pushed.mT * weights.push,
        (before @ told.mT) * weights.replace,
        (before @ room.uncovered.mT) * weights.pop,
    )


def _columns_before(store: Store, start: int, steps: int) -> Tensor:
    """P_{t-1} for the steps of a block, [B, m, K, J K], without the rows that do not count at time t."""
    at = store.automaton
    base, end = at.low(start + 1), start + steps + 1
    found = rows_of(store.columns, at.states, start, end - 1)[..., base * at.kinds : end * at.kinds]
    found = found.reshape(len(found), at.symbols, steps, at.states, -1).transpose(1, 2)
    found = found.reshape(len(found), steps, at.kinds, -1)
    for n in range(2, steps + 1 if at.window is not None else 0):
        found[:, n - 1, :, : (at.low(start + n) - base) * at.kinds] = 0.0
    return found


def _ends(
    store: Store,
    start: int,
    own: Tensor,
    adjoint: Adjoint,
    grad_alpha: Tensor,
    grad_attention: Tensor | None,
) -> Tensor:
    """ab[t, b] + gr_b of the block's steps, [B, m, K]; ab of earlier times is brought up to date."""
    at = store.automaton
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, steps = grad_alpha.shape[:2]
    base, end = at.low(start + 1), start + steps + 1
    columns = own.reshape(batch, symbols, steps, states, -1).transpose(1, 2).reshape(batch, steps * kinds, -1)
    given = adjoint.alpha[:, start + 2 : end + 1].reshape(batch, -1, 1)
    shown = grad_alpha.reshape(batch, -1, 1)
    from_shown = columns.mT @ shown  # [B, (position, a), 1]
    if grad_attention is not None:
        part = grad_attention[..., base:end].reshape(batch, steps * kinds, -1, 1)
        from_shown = from_shown + (columns.view(*part.shape[:3], kinds) * part).sum(1).reshape(batch, -1, 1)
    block = (start + 2 - base) * kinds  # the position of i = t0 + 1
    own_times = torch.nn.functional.pad(from_shown[:, block:], (0, 0, 0, kinds))
    known = given + own_times
    if steps > 1:
        mutual = torch.nn.functional.pad(columns[..., block:].mT, (0, 0, 0, kinds))
        known = torch.linalg.solve_triangular(-mutual, known, upper=True, unitriangular=True)
    earlier = from_shown[:, :block] + columns[..., :block].mT @ known
    adjoint.alpha[:, base : start + 2] += earlier.view(batch, -1, kinds)
    return (known + shown).view(batch, steps, kinds)


def _make_room(store: Store, start: int, adjoint: Adjoint, weights: StepWeights) -> Room:
    """G of the block's times so far, and what its steps uncover."""
    at = store.automaton
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, steps = weights.uncover.shape[:2]
    base, end = at.low(start + 1), start + steps + 1
    rows = rows_of(adjoint.columns, states, start, end)[..., base * kinds : end * kinds].contiguous()
    before = _columns_before(store, start, steps)
    popped = (weights.pop.mT @ before).flatten(0, 1)  # [B m, r, (k, y, u)]
    uses = by_symbol(popped, states, symbols).view(batch, steps, symbols, states, -1)
    uses = uses * weights.uncover.view(batch, steps, symbols, states, 1)
    uses = uses.transpose(1, 2).reshape(batch, symbols, steps * states, -1).contiguous()
    uncovered = before.new_zeros(batch, steps, states, before.shape[3])
    return Room(rows, uses, uncovered, start, at.window or 0, base)


def _add_ends(room: Room, store: Store, start: int, ends: Tensor, grad_attention: Tensor | None) -> None:
    """Add w[i, b] of every step of the block to G, where i counts."""
    at = store.automaton
    batch, steps, kinds = ends.shape
    w = ends[..., None]
    count = room.rows.shape[3] // kinds
    if grad_attention is not None:
        base = at.low(start + 1)
        w = w + grad_attention[..., base : base + count]
    w = w.view(batch, steps, at.symbols, at.states, -1, 1).transpose(1, 2)
    rows = room.rows[:, :, at.states :].view(batch, at.symbols, steps, at.states, count, kinds)
    rows += w


def _tell_earlier(store: Store, start: int, adjoint: Adjoint, room: Room) -> None:
    """G_k += sum_t E A_t[k] G_t for all k up to t0 that the block uncovers, in pieces of the triangle."""
    at = store.automaton
    base = at.low(start + 1)
    first, last = max(base - 1, 0), start + 1  # k
    pieces = max(1, (last - first) // 32)
    for j in range(pieces):
        k0, k1 = first + (last - first) * j // pieces, first + (last - first) * (j + 1) // pieces
        uses = room.uses[..., (k0 + 1 - base) * at.states : (k1 + 1 - base) * at.states]
        told = room.rows[:, :, at.states :, : (k1 - base) * at.kinds]
        here = adjoint.columns[:, :, k0 * at.states : k1 * at.states, base * at.kinds : k1 * at.kinds]
        here += uses.mT @ told
