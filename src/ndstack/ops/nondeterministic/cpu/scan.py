"""The compiled backend as seen from torch: charts as tensors, and calls into the kernels."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu import scan_loops
from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.nondeterministic.cpu.forward import Past, Shape
from ndstack.ops.nondeterministic.cpu.layout import Layout, layout
from ndstack.ops.runtime.addresses import array, room, written, zeros
from ndstack.ops.runtime.threads import share

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.scan import Setting

LIMITS = {torch.float32: math.log(1e-7), torch.float64: math.log(1e-13)}
"""How much mass a chart may lose to underflow before it is not trusted, as a logarithm."""


@dataclasses.dataclass(frozen=True, eq=False)
class CpuChart:
    """The charts of a batch; the batch is the first dimension of every tensor (see `Past`)."""

    columns: Tensor
    log_alpha: Tensor
    log_total: Tensor
    mass: Tensor
    floor: Tensor
    lost: Tensor
    places: Layout
    bottom_fix: bool

    @classmethod
    def empty(cls, batch: int, places: Layout, bottom_fix: bool, dtype: torch.dtype) -> Self:
        """Charts with room for the times of the layout."""
        columns, *others = places.shapes(batch)
        make = zeros if places.band else room
        alpha, total, mass, floor, lost = (room(torch.float64, *shape) for shape in others)
        return cls(make(dtype, *columns), alpha, total, mass, floor, lost, places, bottom_fix)

    def shape(self) -> Shape:
        """For the kernels."""
        at = self.places
        return Shape(at.states, at.symbols, at.band, self.bottom_fix, at.start, at.stride)

    def past(self, end: int) -> Past:
        """For the kernels, which will write the times up to `end`."""
        if not 0 <= end < self.places.times:
            raise NdstackError(f"a chart of {self.places.times} times given to step {end}")
        parts = (self.columns, self.log_alpha, self.log_total, self.mass, self.floor, self.lost)
        dtypes = (self.columns.dtype, *[torch.float64] * 5)
        shapes = self.places.shapes(self.columns.shape[0])
        return Past(*(written(*part[:2], *part[2]) for part in zip(parts, dtypes, shapes, strict=True)))


def forward(
    chart: CpuChart,
    start: int,
    actions: Tensor,
    attend: bool,
    strict: bool = False,
    limit: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Steps start + 1, ..., written into the chart.

    Args:
        chart: holds the times up to `start`; if that is 0, it may be empty.
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q], of the
            chart's dtype.
        attend: whether to compute the attention.
        strict: whether the attention of hardly probable configuration types has to be right too.
        limit: how much mass may be lost, as a logarithm, if not as much as `LIMITS` says.

    Returns:
        Readings [B, n, K], attention [B, n, K, start + n + 1] or empty, and which sequences can be
        trusted [B].
    """
    batch, steps = actions.shape[:2]
    kinds, dtype = chart.places.kinds, chart.columns.dtype
    span = (batch, steps, kinds, start + steps + 1) if attend else (0, 0, 0, 0)
    reading, attention = zeros(dtype, batch, steps, kinds), zeros(dtype, *span)
    ok = np.zeros(chart.columns.shape[0], np.bool_)
    shape, past = chart.shape(), chart.past(start + steps)
    given = array(actions, dtype, len(ok), steps, chart.places.actions)
    shown = written(reading, dtype, len(ok), steps, kinds), written(attention, dtype, *span)
    bound = LIMITS[chart.columns.dtype] if limit is None else limit

    def work(lo: int, hi: int) -> None:
        scan_loops.forward(shape, past, lo, hi, start, given, *shown, ok, bound, strict)

    share(batch, work, cost(chart.places, start, steps) * batch)
    return reading, attention, torch.from_numpy(ok)


def cost(places: Layout, start: int, steps: int) -> float:
    """About how many multiply-adds one sequence takes."""
    span = places.band or start + steps
    each = places.states * places.kinds**2
    return steps * each * (span**2 / 2 if places.band or start else span**2 / 6 + span)


def backward(
    chart: CpuChart,
    start: int,
    actions: Tensor,
    outputs: tuple[Tensor, Tensor],
    grad_outputs: tuple[Tensor, Tensor | None],
    ok: Tensor,
    carried: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The derivatives by the actions of `forward`.

    Args:
        ok: which sequences can be trusted; the others get zeros.
        carried: the derivatives by the chart's columns [B, size] and by log alpha [B,
            ends], which are changed in place; None if there are none and none are wanted.
    """
    batch, steps = actions.shape[:2]
    places, dtype = chart.places, chart.columns.dtype
    shape, past = chart.shape(), chart.past(start + steps)
    grads = zeros(dtype, batch, steps, places.actions)
    each, span = (batch, steps, places.kinds), (batch, steps, places.kinds, start + steps + 1)
    reading, attention = grad_outputs
    nothing = array(actions.new_zeros(0, 0, 0, 0), dtype, 0, 0, 0, 0)
    received = array(reading, dtype, *each), nothing if attention is None else array(attention, dtype, *span)
    given = array(actions, dtype, batch, steps, places.actions)
    into = written(grads, dtype, batch, steps, places.actions)
    shown = array(outputs[0], dtype, *each), nothing if attention is None else array(outputs[1], dtype, *span)
    sure, ends = array(ok, torch.bool, chart.columns.shape[0]), places.ends

    def work(lo: int, hi: int) -> None:
        own = carried or (zeros(dtype, 1, places.size), zeros(dtype, 1, ends))
        sums = [written(t, dtype, len(t), size) for t, size in zip(own, (places.size, ends), strict=True)]
        scan_loops.backward(
            shape,
            past,
            Adjoint(*sums),
            carried is not None,
            lo,
            hi,
            start,
            given,
            shown,
            received,
            into,
            sure,
        )

    share(batch, work, 2 * cost(chart.places, start, steps) * batch)
    return grads


def fresh(
    batch: int,
    steps: int,
    states: int,
    symbols: int,
    window: int | None,
    fix: bool,
    dtype: torch.dtype,
) -> CpuChart:
    """Empty charts for whole sequences."""
    band = 0 if window is None or window > steps else window
    return CpuChart.empty(batch, layout(states, symbols, steps + 1, band), fix, dtype)


def run(actions: Tensor, setting: Setting) -> tuple[CpuChart, Tensor, Tensor, Tensor]:
    """The chart, the probabilities, the attention (empty if not wanted), and what to trust."""
    batch, steps = actions.shape[:2]
    chart = fresh(
        batch,
        steps,
        setting.states,
        setting.symbols,
        setting.window,
        setting.bottom_fix,
        actions.dtype,
    )
    return chart, *forward(chart, 0, actions, setting.attend, setting.strict)


def gradient(
    chart: CpuChart,
    setting: Setting,
    actions: Tensor,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    ok: Tensor,
) -> Tensor:
    """The derivatives by the actions; zero for sequences that are not to be trusted."""
    return backward(chart, 0, actions, outputs, grads, ok, None)
