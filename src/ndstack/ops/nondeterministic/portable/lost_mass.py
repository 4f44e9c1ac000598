"""A bound on what underflow can cost a chart of the portable backend (see `cpu.lost_mass`)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable.recurrence import NEG, Run
from ndstack.ops.nondeterministic.precision_limits import LIMITS, MARGIN


def trusted(run: Run, push: Tensor, replace: Tensor, pop: Tensor, strict: bool) -> Tensor:
    """Which sequences have lost no more than they may, [B].

    With `strict`, of the mass of every configuration type on its own.
    """
    fresh = _fresh(run, push, replace, pop)  # [B, n, K]
    if not bool((fresh > NEG).any()):
        return run.chart.isfinite().flatten(1).all(1)
    symbols, limit = run.symbols, LIMITS[run.chart.dtype]
    norm = torch.logsumexp(run.log_total, -1, keepdim=True)
    lost = torch.full_like(run.log_alpha[:, 0], NEG)
    ok = torch.ones(push.shape[0], dtype=torch.bool, device=push.device)
    for t in range(1, push.shape[1] + 1):
        before = lost[:, :, None]
        terms = [before + push[:, t - 1], before + replace[:, t - 1]]
        terms.append((before + pop[:, t - 1]).repeat(1, 1, symbols))
        lost = torch.logsumexp(torch.cat([*terms, fresh[:, t - 1, None]], 1), 1)
        dead = norm[:, t] == NEG
        ok &= ~(dead.squeeze(-1) & (lost > NEG).any(-1))
        lost = torch.where(dead, NEG, lost - norm[:, t].masked_fill(dead, 0.0))
        ok &= torch.logsumexp(lost, -1) <= limit
        if strict:
            ok &= ((lost == NEG) | (lost - run.log_alpha[:, t] <= limit)).all(-1)
    return ok & run.chart.isfinite().flatten(1).all(1)


def _fresh(run: Run, push: Tensor, replace: Tensor, pop: Tensor) -> Tensor:
    """The log weight that each step may newly lose at each b, [B, n, K]; -inf where none."""
    batch, steps, kinds, _ = push.shape
    tiny = math.log(MARGIN * torch.finfo(run.chart.dtype).tiny)
    positive = run.chart.masked_fill(run.chart == 0, math.inf).amin(-1)
    floor = positive.view(batch, run.symbols, steps + 1, run.states).transpose(1, 2)
    floor = floor.reshape(batch, steps + 1, kinds).log()[:, :-1]
    least = floor.amin(-1).cummin(1).values[:, :, None]  # of the whole chart before each step

    before = run.log_alpha[:, :-1, :, None]
    total, best = run.log_total[:, 1:], run.best_pop[:, 1:]

    def vanishes(x: Tensor, bound: Tensor) -> Tensor:
        """Where a term x > -inf is below `bound`, for some d."""
        return ((x > NEG) & (x < bound)).any(2)

    popped = before + pop
    pop_bound = best[:, :, None] + tiny - floor[..., None]
    pop_event = vanishes(popped, pop_bound).repeat(1, 1, run.symbols)
    smallest = (popped + floor[..., None]).masked_fill(popped == NEG, math.inf).amin(2)
    # E_b A[r; ...] is at least e^{smallest - total}, times the smallest number of the chart.
    event = (smallest.repeat(1, 1, run.symbols) + least < total + tiny) & (total > NEG)
    event |= vanishes(before + push, total[:, :, None] + tiny)
    event |= vanishes(before + replace, total[:, :, None] + tiny - floor[..., None])
    count = torch.arange(2, steps + 2, device=push.device)[:, None] * kinds
    amount = tiny + count.to(total.dtype).log()
    first = torch.where(pop_event, best.repeat(1, 1, run.symbols) + amount, NEG)
    second = torch.where(event, total + amount, NEG)
    return torch.logaddexp(first, second)
