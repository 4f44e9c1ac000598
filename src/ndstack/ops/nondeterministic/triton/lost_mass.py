"""A bound on what underflow can have cost a chart of which every step was normalised on its own.

As in `cpu.lost_mass`: a step loses something where a term that is not zero falls below the smallest normal
number, with room for derivatives. Nothing is looked at; the results stay on the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable import lost_mass
from ndstack.ops.nondeterministic.portable.store import NEG, Store, rows_of
from ndstack.ops.nondeterministic.portable.weights import Actions
from ndstack.ops.nondeterministic.precision_margin import MARGIN


def bound(store: Store, start: int, actions: Actions, lost: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds after some steps, [B, K], and which sequences never lost too much, [B]; writes the floors.

    Args:
        start: the time before the steps.
        actions: the log weights of the steps.
        lost: [B, K], the bounds before them.
    """
    here = slice(start + 1, start + 1 + actions.push.shape[1])
    norm = torch.logsumexp(store.log_total[:, here], -1, keepdim=True)
    fresh = (_fresh(store, start, actions) - norm.masked_fill(norm == NEG, 0.0)).exp()
    after, fine = lost_mass.bound(store, start, actions, lost, fresh, False)
    new = rows_of(store.columns, store.automaton.states, here.start, here.stop)
    return after, fine & new.flatten(1).sum(-1, dtype=lost.dtype).isfinite()


def _fresh(store: Store, start: int, actions: Actions) -> Tensor:
    """The logarithm of what each step may newly lose at each b, [B, n, K]; -inf where that is nothing."""
    at, (batch, steps, kinds, _) = store.automaton, actions.push.shape
    here = slice(start + 1, start + 1 + steps)
    tiny = math.log(MARGIN * torch.finfo(store.columns.dtype).tiny)
    new = rows_of(store.columns, at.states, here.start, here.stop)
    least = torch.where(new > 0, new, math.inf).amin(-1)
    least = least.view(batch, at.symbols, -1, at.states).transpose(1, 2).reshape(batch, -1, kinds)
    store.floor[:, here] = least.to(store.floor.dtype)
    floor = store.floor[:, : here.stop - 1].log()
    smallest = floor.amin(-1).cummin(1).values[:, start:, None]  # of the whole chart before each step
    floor = floor[:, start:]
    before, total = store.log_alpha[:, start : here.stop - 1, :, None], store.log_total[:, here]

    def vanishes(x: Tensor, limit: Tensor) -> Tensor:
        """Where a term x > -inf is below the limit, for some d."""
        return ((x > NEG) & (x < limit)).any(2)

    popped = before + actions.pop
    best = popped.amax(2)
    lost_pop = vanishes(popped, best[:, :, None] + tiny - floor[..., None]).repeat(1, 1, at.symbols)
    last = (popped + floor[..., None]).masked_fill(popped == NEG, math.inf).amin(2)
    # E_b A[r; ...] is at least e^{last - total}, times the smallest number of the chart.
    event = (last.repeat(1, 1, at.symbols) + smallest < total + tiny) & (total > NEG)
    event |= vanishes(before + actions.push, total[:, :, None] + tiny)
    event |= vanishes(before + actions.replace, total[:, :, None] + tiny - floor[..., None])
    count = torch.arange(start + 2, here.stop + 1, device=floor.device, dtype=floor.dtype)[:, None] * kinds
    amount = tiny + count.log()
    first = torch.where(lost_pop, best.repeat(1, 1, at.symbols) + amount, NEG)
    return torch.logaddexp(first, torch.where(event, total + amount, NEG))
