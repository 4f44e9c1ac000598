"""The compiled backend as seen from torch: charts as tensors, and calls into the kernels."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from ndstack.kernels import cpu_scan
from ndstack.kernels.cpu_backward import Adjoint
from ndstack.kernels.cpu_forward import Past, Shape
from ndstack.kernels.cpu_simd import BYTES
from ndstack.kernels.layout import Layout, layout
from ndstack.kernels.threads import share

if TYPE_CHECKING:
    from ndstack.kernels.scan import Setting

LIMITS = {torch.float32: math.log(1e-7), torch.float64: math.log(1e-13)}
"""How much mass a chart may lose to underflow before it is not trusted, as a logarithm."""


def zeros(rows: int, size: int, dtype: torch.dtype) -> Tensor:
    """Zeros that take memory only where they are touched, at a multiple of the size of a vector."""
    wide = np.float64 if dtype == torch.float64 else np.float32
    flat = np.zeros(rows * size + BYTES // 4, wide)
    first = -flat.ctypes.data % BYTES // flat.itemsize
    return torch.from_numpy(flat[first : first + rows * size].reshape(rows, size))


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
        times, kinds, band = places.times, places.kinds, places.band
        double = torch.float64
        masses = (batch, times, band + 1, kinds) if band else (batch, 0, 0, 0)
        columns = zeros(batch, places.size, dtype) if band else torch.empty(batch, places.size, dtype=dtype)
        return cls(
            columns,
            torch.empty(batch, times, kinds, dtype=double),
            torch.empty(batch, times, kinds, dtype=double),
            torch.empty(masses, dtype=double),
            torch.empty(batch, times, kinds, dtype=double),
            torch.empty(batch, kinds + 1, dtype=double),
            places,
            bottom_fix,
        )

    def shape(self) -> Shape:
        """For the kernels."""
        at = self.places
        return Shape(at.states, at.symbols, at.band, self.bottom_fix, at.start, at.stride)

    def past(self) -> Past:
        """For the kernels."""
        return Past(
            self.columns.numpy(),
            self.log_alpha.numpy(),
            self.log_total.numpy(),
            self.mass.numpy(),
            self.floor.numpy(),
            self.lost.numpy(),
        )


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
    kinds = chart.places.kinds
    reading = actions.new_zeros(batch, steps, kinds)
    span = (batch, steps, kinds, start + steps + 1) if attend else (0, 0, 0, 0)
    attention = actions.new_zeros(span)
    ok = np.zeros(batch, np.bool_)
    shape, past = chart.shape(), chart.past()
    given = actions.detach().contiguous().numpy()
    shown = reading.numpy(), attention.numpy()
    bound = LIMITS[chart.columns.dtype] if limit is None else limit

    def work(lo: int, hi: int) -> None:
        cpu_scan.forward(shape, past, lo, hi, start, given, *shown, ok, bound, strict)

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
    shape, past = chart.shape(), chart.past()
    grads = torch.zeros_like(actions)

    def arrays(tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
        return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)

    reading, attention = grad_outputs
    nothing = actions.new_zeros(0, 0, 0, 0)
    received = arrays((reading, nothing if attention is None else attention))
    given, written = arrays((actions, grads))
    shown, sure = arrays(outputs), ok.numpy()
    ends = chart.places.ends

    def work(lo: int, hi: int) -> None:
        dtype = chart.columns.dtype
        own = carried or (zeros(1, chart.places.size, dtype), zeros(1, ends, dtype))
        cpu_scan.backward(
            shape,
            past,
            Adjoint(*(tensor.numpy() for tensor in own)),
            carried is not None,
            lo,
            hi,
            start,
            given,
            shown,
            received,
            written,
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
