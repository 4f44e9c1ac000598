"""Readings and attention by the reference, in log space: a backend, and the last resort of the guard.

The backend has the sums of the package torch-semiring-einsum; the guard, which users wait for, compiled ones.
Where no derivatives are wanted, and no window, the guard has a chart that is kept by blocks (`ScaledChart`).

All is done in float64, since a logarithm takes digits from its number: in float32 this would be the least
precise of the backends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import reference
from ndstack.ops.nondeterministic.cpu.log_semiring import COMPILED_LOG
from ndstack.ops.nondeterministic.cpu.scaled_chart import ScaledChart
from ndstack.ops.nondeterministic.invalid_sequences import invalid_steps, mark, withhold
from ndstack.ops.nondeterministic.semirings import LOG, Semiring
from ndstack.ops.nondeterministic.settings import Setting, shaped
from ndstack.ops.runtime.autograd import compilable

_FEWEST_STEPS = 16
"""For how many steps at least a chart with a window gets room."""


def in_log_space(
    actions: Tensor, setting: Setting, vectors: Tensor | None = None, bottom: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The readings [B, n, K] or [B, n, K, m], and the attention [B, n, K, n + 1] (empty if not wanted).

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
        vectors: [B, n, m], pushed; with them, zeta is computed as the equations of section 9.1 say.
        bottom: [m], the vector of the initial bottom symbol; zeros if not given.
    """
    batch, steps = actions.shape[:2]
    if batch == 0 or steps == 0:
        kinds = setting.states * setting.symbols
        sizes = (kinds,) if vectors is None else (kinds, vectors.shape[-1])
        return actions.new_zeros(batch, steps, *sizes), actions.new_zeros(batch, steps, kinds, steps + 1)
    invalid = invalid_steps(actions)
    valid = actions if invalid is None else withhold(actions, invalid)
    reading, attention = _by_equations(valid.double(), setting, vectors, bottom)
    if invalid is not None:
        reading, attention = mark(reading, invalid), mark(attention, invalid) if setting.attend else attention
    return reading.to(actions.dtype), attention.to(actions.dtype)


def _by_equations(
    actions: Tensor, setting: Setting, vectors: Tensor | None, bottom: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`in_log_space` in float64.

    Log space knows no negative numbers, so the vectors of a sequence are shifted to be positive; zeta is
    linear in them, and the shift comes off the reading again.
    """
    if vectors is None and by_blocks(setting, actions):
        logs = ScaledChart.start(setting, *actions.shape[:2]).advance(actions, setting.attend)
        return _shares(*logs[:2], setting.attend)[1:]
    shift = shifted = low = None
    if vectors is not None:
        vectors = vectors.double()
        low = vectors.new_zeros(vectors.shape[-1]) if bottom is None else bottom.double()
        least = torch.minimum(vectors.detach().amin((1, 2)), low.detach().min())
        shift = torch.where(least > 0, 0.0, 1.0 - least)[:, None]
        shifted, low = (vectors + shift[:, None]).log(), (low + shift).log()
    weights = reference.run(
        *shaped(actions, setting),
        vectors=shifted,
        bottom=low,
        window=setting.window,
        bottom_fix=setting.bottom_fix,
        semiring=_semiring(setting, actions),
    )
    total, reading, attention = _shares(
        weights.alpha.flatten(2), weights.places.flatten(2, 3), setting.attend
    )
    if weights.vectors is not None and shift is not None:
        numerators = weights.vectors.flatten(2, 3)
        reading = quotient(numerators, total[..., None]) - shift[..., None, None] * reading[..., None]
    return reading, attention


def _semiring(setting: Setting, like: Tensor) -> Semiring:
    """The log semiring: as the reference has it, if that is the backend, else by compiled code on a CPU."""
    return COMPILED_LOG if setting.backend != "reference" and compilable(like) else LOG


def by_blocks(setting: Setting, actions: Tensor) -> bool:
    """Whether a `ScaledChart` can be used for these actions."""
    wanted = torch.is_grad_enabled() and actions.requires_grad
    return setting.window is None and not wanted and _semiring(setting, actions) is COMPILED_LOG


def _shares(alpha: Tensor, places: Tensor, attend: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The total [B, n, 1] of log alpha [B, n, K], the readings, and the attention (or nothing)."""
    total = log_sum(alpha)[..., None]
    attention = quotient(places, alpha[..., None]) if attend else alpha.new_zeros(0)
    return total, quotient(alpha, total), attention


@dataclasses.dataclass(eq=False, slots=True)
class LogSpaceChart:
    """The charts of a batch in log space, carried from step to step once float64 has lost a sequence.

    Attributes:
        invalid: [B], which sequences have become invalid (see `invalid_sequences`); None if there is none.
    """

    chart: reference.Stepper | ScaledChart
    setting: Setting
    invalid: Tensor | None = None

    @classmethod
    def start(cls, setting: Setting, batch: int, steps: int, like: Tensor) -> Self:
        """Charts at time 0, with room for `steps` steps.

        Args:
            like: the actions; the kind of chart depends on whether derivatives by them are wanted.
        """
        if by_blocks(setting, like):
            return cls(ScaledChart.start(setting, batch, steps), setting)
        return cls(start_stepper(setting, batch, steps), setting)

    def map(self, change: Callable[[Tensor], Tensor]) -> LogSpaceChart:
        """The same charts with every tensor changed."""
        invalid = None if self.invalid is None else change(self.invalid)
        return LogSpaceChart(self.chart.map(change), self.setting, invalid)

    def advance(self, actions: Tensor, attend: bool) -> tuple[Tensor, Tensor, LogSpaceChart]:
        """Readings [B, n, K], attention [B, n, K, j] (or the readings again), and the charts afterwards.

        The last place of the attention is that of the element pushed by the last step; places that are
        missing at the beginning have no weight.

        Args:
            actions: [B, n, A], log weights in float64.
            attend: whether the attention is wanted.
        """
        invalid = invalid_steps(actions)
        if self.invalid is not None:
            before = self.invalid[:, None].expand(actions.shape[:2])
            invalid = before if invalid is None else before | invalid
        nothing = torch.zeros(actions.shape[:2], dtype=torch.bool)
        valid = withhold(actions, nothing if invalid is None else invalid)
        chart: reference.Stepper | ScaledChart = self.chart
        if isinstance(chart, ScaledChart) and by_blocks(self.setting, valid):
            alpha, places, chart = chart.advance(valid, attend)
            _, reading, attention = _shares(alpha, places, attend)
        else:
            stepper = _stepper_of(chart) if isinstance(chart, ScaledChart) else chart
            reading, attention, chart = _advance_stepper(stepper, self.setting, valid, attend)
        attention = attention if attend else reading
        if invalid is None:
            return reading, attention, LogSpaceChart(chart, self.setting)
        after = LogSpaceChart(chart, self.setting, invalid[:, -1])
        return mark(reading, invalid), mark(attention, invalid), after


def start_stepper(setting: Setting, batch: int, steps: int) -> reference.Stepper:
    """The charts of the reference at time 0."""
    kinds = (setting.states, setting.symbols)
    like = torch.empty(batch, steps, *kinds, setting.states, dtype=torch.float64)
    semiring = _semiring(setting, like)
    return reference.Stepper(like, None, setting.window, setting.bottom_fix, semiring)


def _stepper_of(chart: ScaledChart) -> reference.Stepper:
    """The same charts as the reference has them, without derivatives so far."""
    setting, time = chart.setting, chart.time
    gamma, alpha = chart.logarithms()
    stepper = start_stepper(setting, len(alpha), time)
    kinds = (setting.states, setting.symbols)
    stepper.chart.gamma.copy_(gamma.view(*gamma.shape[:3], *kinds, *kinds))
    stepper.chart.alpha.copy_(alpha.view(*alpha.shape[:2], *kinds))
    stepper.time = time
    stepper.filled.reached(time)
    return stepper


def _advance_stepper(
    stepper: reference.Stepper, setting: Setting, actions: Tensor, attend: bool
) -> tuple[Tensor, Tensor, reference.Stepper]:
    """Readings, attention (or nothing) and charts after further steps of the reference."""
    parts, steps, window = shaped(actions, setting), actions.shape[1], setting.window
    chunk = steps if window is None else max(window, _FEWEST_STEPS)
    readings, attentions = [], []
    for first in range(0, steps, chunk):
        end = min(first + chunk, steps)
        stepper = stepper.successor(end - first)
        results = [stepper.step(*(part[:, t] for part in parts)) for t in range(first, end)]
        alpha, places = (torch.stack(some, 1) for some in zip(*results, strict=True))
        alpha, places = alpha.flatten(2), places[..., : stepper.time + 1].flatten(2, 3)
        _, reading, attention = _shares(alpha, places, attend)
        readings.append(reading)
        if attend:
            attentions.append(torch.nn.functional.pad(attention, (0, steps - end)))
    width = max((part.shape[-1] for part in attentions), default=0)
    reading = torch.cat(readings, 1)
    attention = torch.cat([ending(part, width) for part in attentions], 1) if attentions else reading
    return reading, attention, stepper


def ending(places: Tensor, width: int) -> Tensor:
    """The last places [..., width] of an attention, after zeros if it has fewer."""
    return torch.nn.functional.pad(places, (width - places.shape[-1], 0))


def log_sum(x: Tensor) -> Tensor:
    """logsumexp over the last dimension, with zero gradients where all is -inf."""
    dead = torch.isneginf(x).all(-1)
    return torch.logsumexp(x.masked_fill(dead[..., None], 0.0), -1).masked_fill(dead, -math.inf)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """e^{x - y} for x <= y, and 0 with zero gradients where y is -inf."""
    return (x - y.masked_fill(torch.isneginf(y), 0.0)).exp()
