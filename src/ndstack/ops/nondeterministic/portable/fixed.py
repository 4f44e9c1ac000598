"""Charts of fixed capacity: a step that can be recorded once and repeated.

A CUDA graph, and the code that `torch.compile` makes, repeat the same operations on tensors of the same
shapes. The charts of `chart.py` grow, and their steps know the time. Here the chart of a window of D steps is
a ring: what belongs to time k, or to position i + 1, is in slot k, or i + 1, modulo D, and the time is known
to the device alone. Before step t the slot of position t, which held position t - D, is cleared in all
columns: that is how a window forgets. Every step goes through all D slots, so each costs what the last of D
steps costs.

A stack without a window is one with a window of D steps for the first D - 1 of them.

Equations and order are those of `cpu.forward` and `store`: a step normalises as it goes, symbol first. There
are no derivatives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import memory
from ndstack.ops.nondeterministic.portable.store import NEG, Automaton, wide_dtype
from ndstack.ops.nondeterministic.portable.weights import Actions, inward, symbol_first
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.nondeterministic.precision_margin import MARGIN
from ndstack.ops.nondeterministic.settings import Setting


@dataclasses.dataclass(frozen=True, eq=False)
class FixedChart:
    """The charts of a batch of stacks after some step.

    Attributes:
        automaton: what all steps have in common; its window is the number of slots, D.
        columns: [B, S, D Q, D K], in float64 where the device has it.
        log_alpha: [B, K], log alpha, normalised.
        lost: [B, K], a bound on the mass of runs lost to underflow, relative to all mass.
        trusted: [B], whether it was never too large.
        invalid: [B], whether a sequence was given a nan (see `invalid_sequences`).
        time: [B], how many steps there have been.
    """

    automaton: Automaton
    columns: Tensor
    log_alpha: Tensor
    lost: Tensor
    trusted: Tensor
    invalid: Tensor
    time: Tensor

    @classmethod
    def start(cls, automaton: Automaton, batch: int, device: torch.device) -> Self:
        """Charts at time 0."""
        slots, dtype = automaton.window, wide_dtype(device)
        assert slots is not None
        sizes = (batch, automaton.symbols, slots * automaton.states, slots * automaton.kinds)
        columns = torch.zeros(sizes, dtype=dtype, device=device)
        if automaton.bottom_fix:
            columns[:, 0, 0, 0] = 1.0
        log_alpha = torch.full((batch, automaton.kinds), NEG, dtype=dtype, device=device)
        log_alpha[:, 0] = 0.0
        flags = torch.zeros(batch, dtype=torch.bool, device=device)
        time = torch.zeros(batch, dtype=torch.long, device=device)
        return cls(automaton, columns, log_alpha, torch.zeros_like(log_alpha), ~flags, flags.clone(), time)

    @property
    def slots(self) -> int:
        """D."""
        return self.columns.shape[3] // self.automaton.kinds

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return self.columns, self.log_alpha, self.lost, self.trusted, self.invalid, self.time

    @property
    def chain(self) -> None:
        """There are no chains here, which compiled charts have."""
        return

    def requires_grad(self) -> bool:
        """Nobody can have derivatives."""
        return False

    def map(self, change: Callable[[Tensor], Tensor]) -> FixedChart:
        """The same charts with every tensor changed: moved, or with other rows of the batch."""
        return FixedChart(self.automaton, *(change(tensor) for tensor in self.tensors))

    def fits(self, automaton: tuple[int, int, int, bool], batch: int, device: torch.device) -> bool:
        """Whether these are charts of such an automaton, of the right sizes (see `Chart.fits`)."""
        at, (states, symbols, window, fix) = self.automaton, automaton
        each, slots = (batch, at.kinds), at.window or 0
        columns = (batch, at.symbols, slots * at.states, slots * at.kinds)
        return (
            (at.states, at.symbols, at.bottom_fix) == (states, symbols, fix)
            and (not window or slots <= window)
            and [part.shape for part in self.tensors] == [columns, each, each, *[(batch,)] * 3]
            and all(part.device.type == device.type for part in self.tensors)
        )


def start_fixed(setting: Setting, batch: int, capacity: int, device: torch.device) -> FixedChart:
    """Charts at time 0, right for so many steps, and for more of them if there is a window; or an error."""
    slots = min(capacity + 1, setting.window or capacity + 1)
    automaton = Automaton(setting.states, setting.symbols, slots, setting.bottom_fix)
    memory.check_room(automaton, batch, slots - 1, wide_dtype(device), device, False)
    return FixedChart.start(automaton, batch, device)


class Column(NamedTuple):
    """What a step makes of the columns before it.

    Attributes:
        new: [B, K, D, K], P_t without what is pushed, at (b, position, a).
        pushed: [B, K, K], P_t[t-1, a | b] at (b, a).
        total: [B, K], log alpha[t] before normalisation, given normalised alpha[t-1].
        uncovering: [B, K], a bound on all that a pop can bring about, as a logarithm.
        lowest: [B], the logarithm of a bound from below on all products of positive numbers.
    """

    new: Tensor
    pushed: Tensor
    total: Tensor
    uncovering: Tensor
    lowest: Tensor


def step_fixed(chart: FixedChart, weights: Tensor, bad: Tensor) -> tuple[Tensor, Tensor, FixedChart]:
    """One step: the probabilities [B, K] and the attention by slots [B, K, D], numbered state first.

    Args:
        weights: [B, A], log weights.
        bad: [B], which sequences are given something that is no number; their readings are nan from now on.
    """
    at, slots, dtype = chart.automaton, chart.slots, chart.columns.dtype
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, invalid = len(weights), chart.invalid | bad
    given = inward(weights.masked_fill(invalid[:, None], 0.0)[:, None].to(dtype), states, symbols)
    actions = Actions(*(part[:, 0] for part in given))
    now, slot = chart.time[:1] % slots, (chart.time[:1] + 1) % slots
    by_position = chart.columns.view(batch, symbols, slots * states, slots, kinds)
    columns = by_position.index_fill(3, slot, 0.0).flatten(3)
    by_time = columns.view(batch, symbols, slots, states, slots * kinds)
    before = by_time.index_select(2, now).reshape(batch, kinds, slots * kinds)
    found = _column(chart, actions, columns, before)
    new = found.new.index_copy(2, slot, found.pushed[:, :, None])
    stored = by_time.index_copy(2, slot, new.view(batch, symbols, 1, states, slots * kinds))
    norm = torch.logsumexp(found.total, -1, keepdim=True)
    log_alpha = _over(found.total, norm)
    lost, fine = _bound(chart, actions, norm, found)
    fine &= new.flatten(1).sum(1).isfinite()
    shown = log_alpha.exp().masked_fill(invalid[:, None], math.nan)
    attention = new.sum(-1).masked_fill(invalid[:, None, None], math.nan)
    after = FixedChart(
        at, stored.view_as(columns), log_alpha, lost, chart.trusted & fine, invalid, chart.time + 1
    )
    reading = symbol_first(shown, symbols, states, 1)
    return reading, symbol_first(attention.mT, symbols, states, 1).mT, after


def _column(chart: FixedChart, actions: Actions, columns: Tensor, before: Tensor) -> Column:
    """P_t and log alpha[t] (see `cpu.forward`).

    Args:
        columns: [B, S, D Q, D K], without what is forgotten.
        before: [B, K, D K], those of time t - 1.
    """
    at, slots = chart.automaton, chart.slots
    states, symbols, batch = at.states, at.symbols, len(before)
    lr = chart.log_alpha[..., None]
    pop = lr + actions.pop
    best = pop.amax(1)
    popped = _over(pop, best[:, None]).exp().mT @ before  # A[r; k, y, u], at position k + 1
    popped = popped.view(batch, states, slots, symbols, states).permute(0, 3, 1, 2, 4)
    kept = columns.sum(-1)
    popped = popped.roll(-1, 3).reshape(batch, symbols, states, slots * states)
    popped = popped.masked_fill(kept[:, :, None] <= 0, 0.0)
    mass = (popped * kept[:, :, None]).sum(-1).flatten(1)
    uncovering = best.repeat(1, symbols).masked_fill(mass <= 0, NEG)
    held = before.sum(-1)[..., None]
    push, replace = lr + actions.push, (lr + actions.replace).masked_fill(held <= 0, NEG)
    terms = torch.cat([push, replace + held.log(), (uncovering + mass.log())[:, None]], 1)
    total = torch.logsumexp(terms, 1)
    wu, wr = (_over(part, total[:, None]) for part in (push, replace))
    e = _over(uncovering, total)
    combined = popped @ columns  # the cubic part, [B, S, Q, D K]
    new = wr.exp().mT @ before + e.exp()[..., None] * combined.flatten(1, 2)
    low = torch.where(columns > 0, columns, math.inf).flatten(1).amin(1).log()
    cp, wr_low, wu_low, e_low = (_lowest(part) for part in (_over(pop, best[:, None]), wr, wu, e))
    products = torch.stack([cp + low, wr_low + low, wu_low, cp + low + e_low + low])
    return Column(
        new.view(batch, at.kinds, slots, at.kinds), wu.exp().mT, total, uncovering, products.amin(0)
    )


def _over(x: Tensor, shift: Tensor) -> Tensor:
    """x - shift, -inf where the shift is."""
    return (x - shift.masked_fill(shift == NEG, 0.0)).masked_fill(shift == NEG, NEG)


def _lowest(x: Tensor) -> Tensor:
    """The smallest number but -inf of each sequence, [B], and not more than 0."""
    return x.masked_fill(x == NEG, 0.0).flatten(1).amin(1).clamp_max(0.0)


def _bound(chart: FixedChart, actions: Actions, norm: Tensor, found: Column) -> tuple[Tensor, Tensor]:
    """The bound on lost mass after a step, [B, K], and whether it is not too large, [B] (see `lost_mass`)."""
    at, slots, kind = chart.automaton, chart.slots, torch.finfo(chart.columns.dtype)
    dead, shift = norm[:, 0] == NEG, norm.masked_fill(norm == NEG, 0.0)
    moves = (actions.push - shift[..., None]).exp() + (actions.replace - shift[..., None]).exp()
    moves = moves + (actions.pop - shift[..., None]).exp().repeat(1, 1, at.symbols)
    moves = moves.clamp_max(1e150).masked_fill(dead[:, None, None], 0.0)
    most = torch.logaddexp(found.total, found.uncovering) - shift
    amount = 4 * kind.tiny * slots * at.kinds * (at.kinds + at.states * slots)
    event = found.lowest < math.log(MARGIN * kind.tiny)
    fresh = torch.where(event[:, None], amount * most.exp(), 0.0)
    lost = (chart.lost[:, None] @ moves)[:, 0] + fresh
    fine = (lost.sum(-1) <= math.exp(LIMITS[chart.columns.dtype])) & ~(dead & (chart.lost > 0).any(-1))
    return lost.nan_to_num(math.inf, math.inf), fine
