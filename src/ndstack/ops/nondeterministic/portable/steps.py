"""Further steps of charts on any device, as one differentiable operation per call.

Nothing waits for the device within a step. Whether float32, or float64, has lost too much is noted in the
chart and looked at once per call of several steps, and every `WATCH` single steps. Then the charts are made
again in float64 from the log weights of all steps so far, and where float64 is not enough either, by the
compiled code on the CPU, which can go to log space.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import backends, memory
from ndstack.ops.nondeterministic.invalid_sequences import mark, withhold
from ndstack.ops.nondeterministic.portable import scan
from ndstack.ops.nondeterministic.portable.backward import Adjoint
from ndstack.ops.nondeterministic.portable.chart import DeviceChart, no_links
from ndstack.ops.nondeterministic.portable.scan import Kernels
from ndstack.ops.nondeterministic.precision_guard import places
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.devices import has_double
from ndstack.ops.runtime.tracing import recording

WATCH = 32
"""After so many single steps somebody looks whether the charts can be trusted."""


class DeviceStepped(NamedTuple):
    """Probabilities [B, n, K], attention [B, n, K, time + n + 1] or None, and the charts afterwards."""

    reading: Tensor
    attention: Tensor | None
    chart: DeviceChart


def start_device_chart(
    setting: Setting,
    batch: int,
    steps: int,
    dtype: torch.dtype,
    device: torch.device,
    differentiable: bool = False,
) -> DeviceChart:
    """Charts at time 0, or an error if so many steps, and their derivatives, do not fit the free memory.

    If they have a window they are in float64, where there is such a thing.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    if setting.window is not None and has_double(device):
        dtype = torch.float64
    automaton = scan.automaton_of(setting)
    memory.check_room(automaton, batch, steps, dtype, device, differentiable)
    return DeviceChart.start(automaton, batch, steps, dtype, device)


def advance_device_chart(setting: Setting, chart: DeviceChart, weights: Tensor) -> DeviceStepped:
    """Steps with log weights [B, n, A], whatever they lose."""
    chart = chart.grow(weights.shape[1])
    bad = ~(weights.detach().amax(-1) < torch.inf)
    bad[:, 0] |= chart.invalid
    bad = bad.long().cumsum(1) > 0
    told: list[scan.Done] = []
    kernels = backends.kernels(setting.backend)
    reading, attention, *links = _Advance.apply(
        withhold(weights, bad), *chart.links, chart, setting, kernels, told
    )
    done = told[0]
    time = chart.time + weights.shape[1]
    after = DeviceChart(
        chart.store,
        done.lost,
        chart.trusted & done.trusted,
        bad[:, -1],
        time,
        (links[0], links[1]),
        chart.filled,
        chart.watched,
    )
    chart.filled.reached(time)
    return DeviceStepped(mark(reading, bad), mark(attention, bad) if setting.attend else None, after)


class _Advance(Operation):
    """Readings, attention, and the links of the chart after some steps."""

    @staticmethod
    def forward(
        ctx: Context,
        weights: Tensor,
        columns: Tensor,
        alpha: Tensor,
        chart: DeviceChart,
        setting: Setting,
        kernels: Kernels,
        told: list[scan.Done],
    ) -> tuple[Tensor, ...]:
        weights = weights.detach()
        done = scan.advance(chart.store, chart.time, weights, chart.lost, setting, kernels)
        told.append(done)
        ctx.store, ctx.borders, ctx.kernels, ctx.attend = chart.store, done.borders, kernels, setting.attend
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, done.reading, done.attention)
        return done.reading, done.attention, *no_links(chart.store)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        weights, reading, attention = ctx.saved_tensors
        adjoint = Adjoint.zeros(ctx.store)
        if grads[2] is not None and grads[3] is not None:
            adjoint = Adjoint(grads[2], grads[3])  # nobody else has these, so they may be changed
        shown = torch.zeros_like(reading) if grads[0] is None else grads[0]
        result = scan.go_back(
            ctx.store,
            ctx.borders,
            weights,
            adjoint,
            (reading, attention),
            (shown, grads[1] if ctx.attend else None),
            ctx.kernels,
        )
        return result, adjoint.columns, adjoint.alpha, None, None, None, None


def due(chart: DeviceChart, steps: int) -> bool:
    """Whether it is time to look if the charts can be trusted."""
    return chart.watched and (steps > 1 or chart.time % WATCH == 0)


def distrusted(chart: DeviceChart) -> bool:
    """Look whether a chart of the batch is not to be trusted; this waits for the device.

    Nobody can look while `torch.export` records.
    """
    return not recording() and len(places(~chart.trusted & ~chart.invalid)) > 0


def warn_of_loss(what: str) -> None:
    """Say that numbers may be inaccurate."""
    warnings.warn(
        f"weights so far apart that {what} loses runs of the nondeterministic stack; "
        "readings may be inaccurate",
        RuntimeWarning,
        stacklevel=2,
    )
