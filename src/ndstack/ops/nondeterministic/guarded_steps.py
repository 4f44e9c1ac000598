"""Further steps of charts, in the format that they need (see `precision_guard`).

A stack carries, beside its chart, the log weights of all steps so far. Where a chart in float32 is not to be
trusted, it is made again from these in float64; where float64 is not enough, the readings come from log
space, and without a window so do those of all further steps. With a window the log weights are forgotten
after a while, if log space has not been needed; so charts with a window are in float64 from the beginning.

On the CPU this is done by compiled code, after every call; on other devices by torch operations, as
`portable.steps` says.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu.steps import advance
from ndstack.ops.nondeterministic.log_space import LogSpaceChart, by_blocks, ending
from ndstack.ops.nondeterministic.portable import steps as on_device
from ndstack.ops.nondeterministic.portable.chart import DeviceChart
from ndstack.ops.nondeterministic.precision_guard import next_format, redo
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.nondeterministic.settings import Setting, action_sizes
from ndstack.ops.runtime import devices

History = tuple[Tensor, ...]
"""Log weights of all steps so far, in chunks [B, n, A] or steps [B, A]."""

MANY_STEPS = 256
"""After so many steps, log space without derivatives is no slower than float64, and takes its place."""


class Stepped(NamedTuple):
    """What steps give: probabilities [B, n, K], attention [B, n, K, time + n + 1] or None, and the charts."""

    reading: Tensor
    attention: Tensor | None
    chart: Chart | DeviceChart


def start_chart(setting: Setting, batch: int, steps: int, dtype: torch.dtype) -> Chart:
    """Charts at time 0, with room for `steps` steps or more."""
    dtype = torch.promote_types(dtype, torch.float32) if setting.window is None else torch.float64
    band = setting.window or 0
    return Chart.start(batch, setting.states, setting.symbols, band, setting.bottom_fix, steps, dtype)


def run_steps(
    setting: Setting,
    chart: Chart | DeviceChart | None,
    time: int,
    history: History | None,
    weights: Tensor,
) -> Stepped:
    """Steps with the given log weights.

    Args:
        chart: the charts so far; None if they have to be made from the history.
        time: how many steps there have been.
        history: of the steps so far; None if it is forgotten.
        weights: [B, n, A].
    """
    known = None if history is None else (*history, weights)
    if isinstance(chart, DeviceChart) or (setting.backend != "cpu" and chart is None):
        return _steps_on_device(setting, chart, time, history, weights)
    if weights.is_meta:
        raise NdstackError("compiled steps of a nondeterministic stack need numbers, not tensors on meta")
    if chart is None:
        chart = start_chart(setting, len(weights), time + weights.shape[1], weights.dtype)
        if time:
            past = join_history(history or (), setting, len(weights), time)
            chart = _compiled(_steps(setting, chart, history, past.cpu()).chart)
    elif not chart.lost.is_cpu:
        chart = chart.map(Tensor.cpu)
    reading, attention, after = _steps(setting, chart, known, weights.cpu())
    return Stepped(reading.to(weights), None if attention is None else attention.to(weights), after)


def _compiled(chart: Chart | DeviceChart) -> Chart:
    assert isinstance(chart, Chart)
    return chart


def _steps_on_device(
    setting: Setting, chart: DeviceChart | None, time: int, history: History | None, weights: Tensor
) -> Stepped:
    """Steps by torch operations; the charts are looked at when that is due."""
    batch, steps, device = len(weights), weights.shape[1], weights.device
    if chart is None:
        differentiable = weights.requires_grad and torch.is_grad_enabled()
        chart = on_device.start_device_chart(
            setting, batch, time + steps, weights.dtype, device, differentiable
        )
        if time:
            past = join_history(history or (), setting, batch, time)
            chart = on_device.advance_device_chart(setting, chart, past.to(chart.dtype)).chart
    done = on_device.advance_device_chart(setting, chart, weights.to(chart.dtype))
    dtype = done.chart.dtype
    if weights.is_meta or not on_device.due(done.chart, steps) or not on_device.distrusted(done.chart):
        return _as_given(done, weights)
    if history is None or steps == 1:  # what was read before, or cannot be made again, may be wrong
        on_device.warn_of_loss("float64" if history is None else str(dtype).removeprefix("torch."))
    if history is None:
        return _as_given(done, weights)
    past = join_history((*history, weights), setting, batch)
    if dtype == torch.float32 and devices.has_double(device):
        fresh = on_device.start_device_chart(setting, batch, past.shape[1], torch.float64, device)
        done = on_device.advance_device_chart(setting, fresh, past.double())
        if not on_device.distrusted(done.chart):
            reading, attention, after = _as_given(done, weights)
            return Stepped(reading[:, -steps:], None if attention is None else attention[:, -steps:], after)
    on_cpu = run_steps(setting._replace(backend="cpu"), None, 0, (), past.double().cpu())
    attention = None if on_cpu.attention is None else on_cpu.attention[:, -steps:].to(weights)
    return Stepped(on_cpu.reading[:, -steps:].to(weights), attention, on_cpu.chart)


def _as_given(done: on_device.DeviceStepped, weights: Tensor) -> Stepped:
    """What steps gave, in the dtype of the weights."""
    attention = None if done.attention is None else done.attention.to(weights.dtype)
    return Stepped(done.reading.to(weights.dtype), attention, done.chart)


def _steps(setting: Setting, chart: Chart, history: History | None, weights: Tensor) -> Stepped:
    """Steps on the CPU; the history includes their log weights."""
    steps, dtype = weights.shape[1], chart.dtype
    if chart.only_in_log_space and chart.log_space is not None:
        reading, attention, wide = chart.log_space.advance(weights.double(), setting.attend)
        return Stepped(reading, attention if setting.attend else None, chart.continued_by(wide, steps))
    limit = math.inf if history is None else None
    done = advance(chart, weights.to(dtype), attend=setting.attend, limit=limit)
    if history is None:
        _warn_if_lost(done.chart)
    if history is None or done.all_trusted:
        return Stepped(done.reading, done.attention, done.chart)

    def all_weights() -> Tensor:
        return join_history(history, setting, len(weights)).to("cpu", torch.float64)

    def in_float64() -> Stepped:
        """The whole batch, since a batch of charts has one dtype."""
        past = all_weights()
        if past.shape[1] >= MANY_STEPS and by_blocks(setting, past):
            return by_log_space()
        fresh = start_chart(setting, past.shape[0], past.shape[1], torch.float64)
        reading, attention, chart = _steps(setting, fresh, history, past)
        return Stepped(reading[:, -steps:], None if attention is None else attention[:, -steps:], chart)

    def by_log_space() -> Stepped:
        """The whole batch, too, in charts that further steps will continue."""
        wide, given = chart.log_space, weights.double()
        if wide is None:
            given = all_weights()
            room = given.shape[1] if setting.window is None else 0
            wide = LogSpaceChart.start(setting, len(given), room, given)
        better, places, wide = wide.advance(given, setting.attend)
        results, wider = [done.reading], [better[:, -steps:]]
        if done.attention is not None:
            results.append(done.attention)
            wider.append(ending(places[:, -steps:], done.attention.shape[-1]))
        reading, *attention = redo(results, done.untrusted(), lambda rows: [part[rows] for part in wider])
        return Stepped(reading, attention[0] if attention else None, done.chart.continued_by(wide, 0))

    return next_format(dtype, in_float64, by_log_space)()


def _warn_if_lost(chart: Chart) -> None:
    if bool((torch.logsumexp(chart.lost[:, :-1], -1) > LIMITS[chart.dtype]).any()):
        warnings.warn(
            "weights so far apart that float64 loses runs of the nondeterministic stack; "
            "readings may be inaccurate",
            RuntimeWarning,
            stacklevel=2,
        )


def merge_history(history: History, weights: Tensor) -> History:
    """The history after some steps [B, n, A], in few parts, each of them longer than the next."""

    def follows(part: object) -> bool:  # a file may hold anything
        if not isinstance(part, Tensor) or part.dim() != 3 or part.shape[::2] != weights.shape[::2]:
            return False
        return part.dtype == weights.dtype and part.device == weights.device

    while history and follows(history[-1]) and history[-1].shape[1] <= weights.shape[1]:
        weights, history = torch.cat([history[-1], weights], 1), history[:-1]
    return (*history, weights)


def join_history(history: History, setting: Setting, batch: int, time: int | None = None) -> Tensor:
    """All log weights so far, [B, time, A]; an error unless there are as many as that, if it is given."""
    size = sum(action_sizes(setting.states, setting.symbols))
    given: tuple[object, ...] = history  # a file may say anything
    if not all(
        isinstance(part, Tensor) and part.dim() in (2, 3) and part.layout is torch.strided for part in given
    ):
        raise NdstackError("a history given that is no sequence of log weights; use what a step gave")
    parts = [part if part.dim() == 3 else part[:, None] for part in history]
    steps = sum(part.shape[1] for part in parts)
    if steps != (steps if time is None else time) or any(
        part.shape != (batch, part.shape[1], size) for part in parts
    ):
        raise NdstackError(
            f"a state at time {time} with a history of {steps} steps given, expected as many, of {batch} "
            f"stacks and {size} log weights each; use a state that start() or a step gave"
        )
    return torch.cat(parts, 1)
