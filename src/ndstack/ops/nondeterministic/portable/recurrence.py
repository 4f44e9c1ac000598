"""Lang's algorithm without logarithms in plain torch operations, for any device.

The same mathematics as the compiled kernels (see `cpu.forward` and `cpu.backward` for the
equations), with dense charts and batched matrix products. Inside this file configuration types
are numbered symbol first, b = (y, r), so that the columns that one pop can uncover, those of one
symbol y, are the rows of one matrix:

    chart[B, y, (k, u), (i, a)] = P_k[i, a | (u, y)]

with i from -1, that is, position i + 1. `uses` keeps E_b A[r; k, u, y] of every step t for the way
back.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

NEG = -math.inf

BLOCK = 16
"""The gradient gathers what later blocks of so many steps say about a block in one product of matrices."""


@dataclasses.dataclass
class Run:
    """What a forward pass leaves for the backward pass and the precision guard.

    Attributes:
        chart: [B, S, T Q, T K], T = n + 1.
        uses: [B, S, T Q, T Q], of (t, r) and (k, u).
        log_alpha: [B, T, K], normalised.
        log_total: [B, T, K], not normalised, given normalised log alpha of the step before.
        best_pop: [B, T, Q].
        kept: [B, T, K], the mass of the columns of time t-1 that the window keeps at time t.
        low: for every t the first position that the window keeps.
    """

    states: int
    symbols: int
    chart: Tensor
    uses: Tensor
    log_alpha: Tensor
    log_total: Tensor
    best_pop: Tensor
    kept: Tensor
    low: list[int]

    @property
    def kinds(self) -> int:
        """K, the number of configuration types."""
        return self.states * self.symbols

    def column(self, chart: Tensor, t: int) -> Tensor:
        """The columns of time t, [B, S, Q, T K]."""
        return chart[:, :, t * self.states : (t + 1) * self.states]


def symbol_first(tensor: Tensor, states: int, symbols: int, dims: int) -> Tensor:
    """Renumber the last `dims` dimensions of size K from (state, symbol) to (symbol, state)."""
    shape = tensor.shape[: tensor.dim() - dims]
    split = tensor.reshape(*shape, *([states, symbols] * dims))
    order = list(range(len(shape)))
    for d in range(dims):
        order += [len(shape) + 2 * d + 1, len(shape) + 2 * d]
    return split.permute(order).reshape(tensor.shape)


def by_position(column: Tensor, kinds: int) -> Tensor:
    """A view of columns with (i, a) as two dimensions."""
    return column.view(*column.shape[:-1], -1, kinds)


def _exp(x: Tensor, shift: Tensor) -> Tensor:
    """exp(x - shift), 0 where shift is -inf."""
    return torch.where(shift == NEG, NEG, x - shift.masked_fill(shift == NEG, 0.0)).exp()


def _weights(run: Run, times: slice, push: Tensor, replace: Tensor, pop: Tensor) -> tuple[Tensor, ...]:
    """WU, WR [B, n, K, K], CP [B, n, K, Q] and E [B, n, K] of n steps, in double precision.

    Args:
        times: of the steps.
        push, replace, pop: their log weights with log alpha of the time before added.
    """
    total, best = run.log_total[:, times], run.best_pop[:, times]
    wpush = _exp(push, total[..., None, :])
    wreplace = torch.where(run.kept[:, times, :, None] > 0, _exp(replace, total[..., None, :]), 0.0)
    wpop = _exp(pop, best[..., None, :])
    alive = best.repeat(1, 1, run.symbols)
    return wpush, wreplace, wpop, torch.where(alive == NEG, 0.0, _exp(alive, total))


def forward(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    states: int,
    window: int | None,
    bottom_fix: bool,
) -> Run:
    """All steps of whole sequences.

    Args:
        push, replace, pop: [B, n, K, K], [B, n, K, K], [B, n, K, Q], log weights, symbol first.
    """
    batch, steps, kinds, _ = push.shape
    symbols, times = kinds // states, steps + 1
    wide = torch.float32 if push.device.type == "mps" else torch.float64
    run = Run(
        states,
        symbols,
        push.new_zeros(batch, symbols, times * states, times * kinds),
        push.new_zeros(batch, symbols, times * states, times * states),
        push.new_full((batch, times, kinds), NEG, dtype=wide),
        push.new_full((batch, times, kinds), NEG, dtype=wide),
        push.new_full((batch, times, states), NEG, dtype=wide),
        push.new_ones(batch, times, kinds),
        [0 if window is None else max(0, t - window + 1) for t in range(times)],
    )
    run.log_alpha[:, 0, 0] = 0.0
    if bottom_fix:
        run.chart[:, 0, 0, 0] = 1.0
    mass = push.new_zeros(batch, symbols, times * states, times)
    mass[:, 0, 0, 0] = float(bottom_fix)
    for t in range(1, times):
        before = run.log_alpha[:, t - 1, :, None]
        _step(
            run,
            t,
            before + push[:, t - 1],
            before + replace[:, t - 1],
            before + pop[:, t - 1],
            mass if window is not None or not bottom_fix else None,
        )
    return run


def _step(run: Run, t: int, push: Tensor, replace: Tensor, pop: Tensor, mass: Tensor | None) -> None:
    """Step t. `mass` [B, S, T Q, T] holds sum_a P_k[i, a | b], needed if columns lose mass."""
    states, symbols, kinds = run.states, run.symbols, run.kinds
    batch, dtype = push.shape[0], run.chart.dtype
    low = run.low[t]  # positions low .. t-1 are i = low-1 .. t-2
    old = slice(low * kinds, t * kinds)
    before = run.column(run.chart, t - 1)[..., old].reshape(batch, kinds, -1)
    run.best_pop[:, t] = pop.amax(1)
    wpop = _exp(pop, run.best_pop[:, t, None]).to(dtype)
    popped = (wpop.mT @ before).view(batch, states, -1, symbols, states)  # r, k, y, u
    popped = popped[:, :, 1:] if low == 0 else popped  # k = -1 uncovers nothing
    first = 0 if low == 0 else low - 1  # k = first .. t-2
    kept = popped
    if mass is not None:
        rows = slice(first * states, (t - 1) * states)
        share = mass[:, :, rows, low:t].sum(-1).view(batch, symbols, -1, states)
        kept = popped * share.transpose(1, 2)[:, None]
        rows = slice((t - 1) * states, t * states)
        run.kept[:, t] = mass[:, :, rows, low:t].sum(-1).reshape(batch, kinds)
    replaced = replace + run.kept[:, t, :, None].to(replace.dtype).log()
    found = kept.sum((2, 4), dtype=run.log_total.dtype).mT.reshape(batch, kinds)  # y, r
    terms = [push, replaced, (run.best_pop[:, t].repeat(1, symbols) + found.log())[:, None]]
    total = torch.logsumexp(torch.cat(terms, 1), 1)
    run.log_total[:, t] = total
    norm = torch.logsumexp(total, 1, keepdim=True)
    run.log_alpha[:, t] = torch.where(norm == NEG, NEG, total - norm.masked_fill(norm == NEG, 0.0))
    found_weights = _weights(run, slice(t, t + 1), push[:, None], replace[:, None], pop[:, None])
    wpush, wreplace, _, epop = (x[:, 0].to(dtype) for x in found_weights)
    new = run.column(run.chart, t)
    new[..., t * kinds : (t + 1) * kinds] = wpush.mT.reshape(batch, symbols, states, kinds)
    column = (wreplace.mT @ before).view(batch, symbols, states, -1)
    if t - 1 > first:
        uses = run.uses[:, :, t * states : (t + 1) * states, first * states : (t - 1) * states]
        uses.copy_(
            (popped * epop.view(batch, symbols, states).permute(0, 2, 1)[:, :, None, :, None])
            .permute(0, 3, 1, 2, 4)
            .reshape(uses.shape)
        )
        column += uses @ run.chart[:, :, first * states : (t - 1) * states, old]
    new[..., old] = column
    if mass is not None:
        rows = slice(t * states, (t + 1) * states)
        mass[:, :, rows] = by_position(new, kinds).sum(-1)


def attention(run: Run) -> Tensor:
    """sum_a P_t[i, a | b] for t = 1 .. n, [B, n, K, n + 1]."""
    batch, symbols, rows, _ = run.chart.shape
    times = rows // run.states
    sums = run.chart.view(batch, symbols, times, run.states, times, run.kinds).sum(-1)
    return sums[:, :, 1:].permute(0, 2, 1, 3, 4).reshape(batch, times - 1, run.kinds, times)


def backward(
    run: Run,
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    grad_alpha: Tensor,
    grad_attention: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives by push, replace and pop.

    Args:
        grad_alpha: [B, n, K], derivatives by log alpha[t], from the readings.
        grad_attention: [B, n, K, n + 1], derivatives by the attention, or None.
    """
    batch, steps, kinds, _ = push.shape
    states, symbols = run.states, run.symbols
    adjoint = torch.zeros_like(run.chart)
    alpha = run.chart.new_zeros(batch, steps + 2, kinds)  # from i = -1
    grads = tuple(torch.zeros_like(action) for action in (push, replace, pop))
    before = run.log_alpha[:, :-1, :, None]
    given = [before + action for action in (push, replace, pop)]
    weights = [x.to(run.chart.dtype) for x in _weights(run, slice(1, None), *given)]
    for t in range(steps, 0, -1):
        end = min(BLOCK * ((t - 1) // BLOCK + 1), steps)  # the last time of the block of t
        if t == end:
            _gather(run, adjoint, range(BLOCK * ((t - 1) // BLOCK) + 1, t + 1), range(t + 1, steps + 1))
        low = run.low[t]
        here = slice(low * kinds, (t + 1) * kinds)
        own = run.column(adjoint, t)[..., here]  # [B, S, Q, (i, a)]
        _gather(run, adjoint, range(t, t + 1), range(t + 2, end + 1))
        w = (alpha[:, t + 1] + grad_alpha[:, t - 1])[:, :, None]
        if grad_attention is not None:
            w = w + grad_attention[:, t - 1, :, low : t + 1]
        w = w.view(batch, symbols, states, -1, 1).to(run.chart.dtype)
        by_position(own, kinds).add_(w)
        probability = by_position(run.column(run.chart, t)[..., here], kinds)
        alpha[:, low : t + 1] += (probability * w).sum((1, 2))
        _step_back(run, t, adjoint, own, [weight[:, t - 1] for weight in weights], grads)
    return grads[0], grads[1], grads[2]


def _gather(run: Run, adjoint: Tensor, times: range, later: range) -> None:
    """Add to the columns of some times what later steps that uncover them say."""
    if not len(later):
        return
    own, others = (slice(part.start * run.states, part.stop * run.states) for part in (times, later))
    here = slice(run.low[times.start] * run.kinds, times.stop * run.kinds)
    adjoint[:, :, own, here] += run.uses[:, :, others, own].mT @ adjoint[:, :, others, here]


def _step_back(
    run: Run,
    t: int,
    adjoint: Tensor,
    own: Tensor,
    weights: list[Tensor],
    grads: tuple[Tensor, ...],
) -> None:
    """The derivatives by the actions of step t, and by P_{t-1} through them."""
    states, symbols, kinds, low = run.states, run.symbols, run.kinds, run.low[t]
    batch = own.shape[0]
    wpush, wreplace, wpop, epop = weights
    old = slice(low * kinds, t * kinds)
    mine = own[..., : (t - low) * kinds]
    grads[0][:, t - 1] = own[..., (t - low) * kinds :].reshape(batch, kinds, kinds).mT * wpush
    before = run.column(run.chart, t - 1)[..., old].reshape(batch, kinds, -1)
    flat = mine.reshape(batch, kinds, -1)
    grads[1][:, t - 1] = (before @ flat.mT) * wreplace
    carried = wreplace @ flat
    first = 0 if low == 0 else low - 1
    if t - 1 > first:
        known = run.chart[:, :, first * states : (t - 1) * states, old]
        back = (mine @ known.mT) * epop.view(batch, symbols, states, 1)  # y, r, (k, u)
        back = back.view(batch, symbols, states, -1, states).permute(0, 2, 3, 1, 4)  # r, k, y, u
        back = back.reshape(batch, states, -1)
        if low == 0:
            back = torch.nn.functional.pad(back, (kinds, 0))
        grads[2][:, t - 1] = (before @ back.mT) * wpop
        carried += wpop @ back
    previous = run.column(adjoint, t - 1)[..., old]
    previous += carried.view(previous.shape)
