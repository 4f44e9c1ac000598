"""A bound on what underflow can have cost a chart of which every step was normalised on its own.

As in `cpu.lost_mass`: a step loses something where a term that is not zero falls below the smallest normal
number, with room for derivatives. Nothing is looked at; the results stay on the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable import lost_mass
from ndstack.ops.nondeterministic.portable.store import NEG, Store
from ndstack.ops.nondeterministic.portable.weights import Actions
from ndstack.ops.nondeterministic.precision_margin import MARGIN


def bound(store: Store, actions: Actions, lost: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds after all steps, [B, K], and which sequences never lost too much, [B]; writes the floors.

    Args:
        actions: the log weights of all steps of the chart.
        lost: [B, K], the bounds before them.
    """
    steps = actions.push.shape[1]
    norm = torch.logsumexp(store.log_total[:, 1 : steps + 1], -1, keepdim=True)
    fresh = (_fresh(store, actions) - norm.masked_fill(norm == NEG, 0.0)).exp()
    after, fine = lost_mass.bound(store, 0, actions, lost, fresh, False)
    return after, fine & store.columns.flatten(1).sum(-1, dtype=lost.dtype).isfinite()


def _fresh(store: Store, actions: Actions) -> Tensor:
    """The logarithm of what each step may newly lose at each b, [B, n, K]; -inf where that is nothing."""
    at, (batch, steps, kinds, _) = store.automaton, actions.push.shape
    tiny = math.log(MARGIN * torch.finfo(store.columns.dtype).tiny)
    columns = store.columns
    least = torch.where(columns > 0, columns, math.inf).amin(-1)
    floor = least.view(batch, at.symbols, -1, at.states).transpose(1, 2).reshape(batch, -1, kinds)
    store.floor.copy_(floor)
    floor = floor[:, :steps].to(store.floor.dtype).log()
    smallest = floor.amin(-1).cummin(1).values[:, :, None]  # of the whole chart before each step
    before, total = store.log_alpha[:, :steps, :, None], store.log_total[:, 1 : steps + 1]

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
    count = torch.arange(2, steps + 2, device=floor.device, dtype=floor.dtype)[:, None] * kinds
    amount = tiny + count.log()
    first = torch.where(lost_pop, best.repeat(1, 1, at.symbols) + amount, NEG)
    return torch.logaddexp(first, torch.where(event, total + amount, NEG))
