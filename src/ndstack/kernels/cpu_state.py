"""Charts that are carried from call to call: one step, or a chunk, of the compiled backend.

A chart is memory that grows at its end. States share it as long as each is the last one's only
successor; a second successor (beam search) gets a copy. With a window the chart is moved to the
beginning of new memory when it is full, and keeps the last D + 1 times.

In the graph of derivatives a chart is represented by two `links`, tensors of its shape that take no
memory. Their gradients are the adjoints that a step leaves for the steps before it; each step adds
its own in place and passes them on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import cpu_engine
from ndstack.kernels.cpu_engine import LIMITS, CpuChart, zeros
from ndstack.kernels.layout import Layout, layout
from ndstack.kernels.rows import refuse_second_derivatives


@dataclasses.dataclass(eq=False)
class Filled:
    """Up to which time the memory of a chart is written, for all who share it."""

    time: int


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """Where in its memory a chart is."""

    layout: Layout
    bottom_fix: bool
    time: int
    filled: Filled


Memory = tuple[Tensor, ...]
"""columns, log_alpha, log_total, mass, floor, lost (see `CpuChart`), and the two links."""


def start(
    batch: int,
    states: int,
    symbols: int,
    band: int,
    fix: bool,
    steps: int,
    dtype: torch.dtype,
) -> tuple[Memory, Place]:
    """Memory and place of fresh charts with room for `steps` steps or more.

    Args:
        band: the window D, or 0 without one.
    """
    room = steps + 1 if steps > 1 else 32  # one step is likely to be the first of many
    places = layout(states, symbols, max(room, 4 * (band + 1)), band)
    chart = CpuChart.empty(batch, places, fix, dtype)
    return (*_tensors(chart), *_links(chart)), Place(places, fix, 0, Filled(0))


def _tensors(chart: CpuChart) -> Memory:
    return (
        chart.columns,
        chart.log_alpha,
        chart.log_total,
        chart.mass,
        chart.floor,
        chart.lost,
    )


def _links(chart: CpuChart) -> Memory:
    nothing = chart.columns.new_zeros(())
    batch = chart.columns.shape[0]
    return nothing.expand(batch, chart.places.size), nothing.expand(batch, chart.places.ends)


def chart_of(memory: Memory, place: Place) -> CpuChart:
    """The charts at a place in memory."""
    columns, log_alpha, log_total, mass, floor, lost = memory[:6]
    at, fix = place.layout, place.bottom_fix
    return CpuChart(columns, log_alpha, log_total, mass, floor, lost, at, fix)


def with_room(memory: Memory, place: Place, steps: int) -> tuple[Memory, Place, int]:
    """The same charts where `steps` more steps can be written, and how far back times moved."""
    old, time, band = place.layout, place.time, place.layout.band
    enough = time + steps + 1 <= old.times
    if enough and place.filled.time == time:
        return memory, place, 0
    shift = time - band if band and not enough and time > band else 0
    times = old.times if enough else max(time - shift + steps + 1, 2 * (time - shift))
    new = layout(old.states, old.symbols, times, band)
    chart = CpuChart.empty(memory[0].shape[0], new, place.bottom_fix, memory[0].dtype)
    move = _Move(old, new, time, shift)
    chart.columns[:, : move.columns] = memory[0][:, move.first : move.first + move.columns]
    kept = time - shift + 1
    for target, source in zip(_tensors(chart)[1:5], memory[1:5], strict=True):
        if source.numel():
            target[:, :kept] = source[:, shift : time + 1]
    chart.lost.copy_(memory[5])
    links = memory[6:]
    if new is not old or shift:
        moved: Any = _MoveLinks.apply
        links = moved(*links, move)
    place = Place(new, place.bottom_fix, time - shift, Filled(time - shift))
    return (*_tensors(chart), *links), place, shift


class _Move:
    """Which part of the old memory becomes the beginning of the new."""

    def __init__(self, old: Layout, new: Layout, time: int, shift: int) -> None:
        each = int(old.stride[0]) * old.kinds
        self.old, self.new = old, new
        self.first = shift * each
        end = old.start[time] + old.kinds * old.stride[time] if not old.band else 0
        self.columns = (time - shift + 1) * each if old.band else int(end)
        self.first_alpha = shift * old.kinds
        self.alphas = (time - shift + 2) * old.kinds


class _MoveLinks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, columns: Tensor, alpha: Tensor, move: _Move) -> Any:
        ctx.move, ctx.shapes = move, (columns.shape, alpha.shape)
        ctx.set_materialize_grads(False)
        nothing, batch = columns.new_zeros(()), columns.shape[0]
        return nothing.expand(batch, move.new.size), nothing.expand(batch, move.new.ends)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        move: _Move = ctx.move
        results: list[Tensor | None] = []
        parts = ((move.first, move.columns), (move.first_alpha, move.alphas))
        for grad, shape, (first, count) in zip(grads, ctx.shapes, parts, strict=True):
            if grad is None:
                results.append(None)
                continue
            back = zeros(shape[0], shape[1], grad.dtype)
            back[:, first : first + count] = grad[:, :count]
            results.append(back)
        return *results, None


def advance(
    memory: Memory, place: Place, actions: Tensor, attend: bool, limit: float | None
) -> tuple[Tensor, Tensor, Tensor, Memory, Place]:
    """Further steps, in charts that have room for them.

    Args:
        memory, place: from `with_room`.
        actions: [B, n, A], log weights, of the charts' dtype.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.

    Returns:
        Probabilities [B, n, K], attention [B, n, K, time + n + 1], which sequences can be trusted
        [B], and the charts afterwards.
    """
    time = place.time + actions.shape[1]
    lost = memory[5].clone()
    memory = (*memory[:5], lost, *memory[6:])
    sure: list[Tensor] = []
    go: Any = _Advance.apply
    bound = LIMITS[actions.dtype] if limit is None else limit
    reading, attention, *links = go(
        *memory[6:], actions, chart_of(memory, place), place.time, attend, bound, sure
    )
    place.filled.time = time
    after = Place(place.layout, place.bottom_fix, time, place.filled)
    return reading, attention, sure[0], (*memory[:6], *links), after


def lost_too_much(memory: Memory) -> bool:
    """Whether any of the charts may have lost more than the guard allows."""
    return bool((torch.logsumexp(memory[5][:, :-1], -1) > LIMITS[memory[0].dtype]).any())


class _Advance(torch.autograd.Function):
    """Steps of carried charts, which are written in place."""

    @staticmethod
    def forward(
        ctx: Any,
        columns: Tensor,
        alpha: Tensor,
        actions: Tensor,
        chart: CpuChart,
        start: int,
        attend: bool,
        limit: float,
        sure: list[Tensor],
    ) -> Any:
        actions = actions.detach().contiguous()
        reading, attention, ok = cpu_engine.forward(chart, start, actions, attend, limit=limit)
        sure.append(ok)
        ctx.chart, ctx.start, ctx.ok = chart, start, ok
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(actions, reading, attention)
        return reading, attention, columns.view_as(columns), alpha.view_as(alpha)

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        refuse_second_derivatives()
        actions, reading, attention = ctx.saved_tensors
        shown, weights, columns, alpha = received
        places = ctx.chart.places
        shown = torch.zeros_like(reading) if shown is None else shown
        carried = None
        if ctx.needs_input_grad[0] or columns is not None or alpha is not None:
            batch, dtype = actions.shape[0], actions.dtype
            carried = (
                zeros(batch, places.size, dtype) if columns is None else columns.contiguous(),
                zeros(batch, places.ends, dtype) if alpha is None else alpha.contiguous(),
            )
        grads = cpu_engine.backward(
            ctx.chart,
            ctx.start,
            actions,
            (reading, attention),
            (shown, weights if attention.numel() else None),
            ctx.ok,
            carried,
        )
        passed = carried if carried is not None and ctx.needs_input_grad[0] else (None, None)
        return *passed, grads, None, None, None, None, None
