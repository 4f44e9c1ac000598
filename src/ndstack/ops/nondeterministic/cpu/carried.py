"""Charts that are carried from call to call: one step, or a chunk, of the compiled backend.

A chart is memory that grows at its end. States share it as long as each is the last one's only
successor; a second successor (beam search) gets a copy. With a window the chart is moved to the
beginning of new memory when it is full, and keeps the last D + 1 times.

In the graph of derivatives a chart is represented by two `links`, tensors of its shape that take no
memory, whose gradients are the derivatives by the chart. Between steps that share their memory and
have no other successors, a token of a `Tape` takes their place.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu.layout import Layout, layout
from ndstack.ops.nondeterministic.cpu.scan import LIMITS, CpuChart
from ndstack.ops.nondeterministic.cpu.steps import Call, Tape, enclose, expose, links
from ndstack.ops.nondeterministic.cpu.steps import advance as go_on
from ndstack.ops.runtime.addresses import zeros
from ndstack.ops.runtime.tracing import refuse_transforms


class Filled:
    """Up to which time the memory of a chart is written, for all who share it.

    States may be continued by several threads at once, so the right to write is taken in one indivisible
    operation, before anything is written.
    """

    def __init__(self, time: int) -> None:
        self._ends = {time}

    def claim(self, time: int) -> bool:
        """Whether the caller alone may write what follows this time."""
        try:
            self._ends.remove(time)
        except KeyError:
            return False
        return True

    def reached(self, time: int) -> None:
        """Whoever had claimed the memory has written it up to this time."""
        self._ends = {time}


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """Where in its memory a chart is."""

    layout: Layout
    bottom_fix: bool
    time: int
    filled: Filled
    tape: Tape | None = None


Memory = tuple[Tensor, ...]
"""columns, log_alpha, log_total, mass, floor, lost (see `CpuChart`), and then the two links, or the
token of the chain, if the place is on a tape."""


class Advanced(NamedTuple):
    """What `advance` gives.

    Attributes:
        reading: probabilities, [B, n, K], or [B, K] for one step.
        attention: [B, n, K, time + n + 1], or None.
        actions: the log weights.
        call: tells which sequences can be trusted.
        memory, place: the charts afterwards.
    """

    reading: Tensor
    attention: Tensor | None
    actions: Tensor
    call: Call
    memory: Memory
    place: Place


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
    room = steps + 1 if steps > 1 else _likely(states * symbols)
    places = layout(states, symbols, max(room, 4 * (band + 1)), band)
    chart = CpuChart.empty(batch, places, fix, dtype)
    return (*_tensors(chart), *links(chart.columns, places)), Place(places, fix, 0, Filled(0))


def _likely(kinds: int) -> int:
    """For how many steps to make room at the first of them: about a megabyte, mostly untouched."""
    return max(32, min(128, math.isqrt(2**19 // kinds**2)))


def _tensors(chart: CpuChart) -> Memory:
    return (
        chart.columns,
        chart.log_alpha,
        chart.log_total,
        chart.mass,
        chart.floor,
        chart.lost,
    )


def chart_of(memory: Memory, place: Place) -> CpuChart:
    """The charts at a place in memory."""
    columns, log_alpha, log_total, mass, floor, lost = memory[:6]
    at, fix = place.layout, place.bottom_fix
    return CpuChart(columns, log_alpha, log_total, mass, floor, lost, at, fix)


def with_room(memory: Memory, place: Place, steps: int) -> tuple[Memory, Place]:
    """The same charts where `steps` more steps can be written, by the caller and nobody else."""
    old, time, band = place.layout, place.time, place.layout.band
    enough = time + steps + 1 <= old.times
    may_write = place.filled.claim(time)
    if enough and may_write:
        return memory, place
    tape = place.tape if may_write and not band else None
    if tape is None:
        memory, place = settled(memory, place)
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
    after = Place(new, place.bottom_fix, time - shift, Filled(time - shift), tape)
    if tape is not None:
        tape.hold(_tensors(chart)[:5], new)
        return (*_tensors(chart), memory[6]), after
    dense = memory[6:]
    if new is not old or shift:
        moved: Any = _MoveLinks.apply
        dense = moved(*dense, move)
    return (*_tensors(chart), *dense), after


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
        return links(columns, move.new)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        move: _Move = ctx.move
        results: list[Tensor | None] = []
        parts = ((move.first, move.columns), (move.first_alpha, move.alphas))
        for grad, shape, (first, count) in zip(grads, ctx.shapes, parts, strict=True):
            if grad is None:
                results.append(None)
                continue
            back = zeros(grad.dtype, *shape)
            back[:, first : first + count] = grad[:, :count]
            back[grad[:, 0].isnan()] = math.nan  # a invalid sequence, wherever its chart is
            results.append(back)
        return *results, None


def advance(
    memory: Memory,
    place: Place,
    given: Tensor,
    layer: tuple[Tensor, Tensor] | None,
    attend: bool,
    limit: float | None,
) -> Advanced:
    """Further steps, in charts that have room for them.

    Args:
        memory, place: from `with_room`.
        given: [B, n, A] or [B, A], log weights, of the charts' dtype; or [B, H], see `layer`.
        layer: weight [A, H] and bias [A] that make hidden states log weights.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.
    """
    refuse_transforms()
    linked = torch.is_grad_enabled() and (given.requires_grad or bool(layer and layer[0].requires_grad))
    memory, place, tape = _on_tape(memory, place, linked)
    lost = memory[5].clone()
    call = Call(tape, place.time, attend, LIMITS[tape.dtype] if limit is None else limit, lost)
    reading, attention, actions, token = go_on(memory[6], given, layer, call)
    time = place.time + (given.shape[1] if given.dim() == 3 else 1)
    place.filled.reached(time)
    after = Place(place.layout, place.bottom_fix, time, place.filled, tape)
    return Advanced(reading, attention, actions, call, (*memory[:5], lost, token), after)


def _on_tape(memory: Memory, place: Place, linked: bool) -> tuple[Memory, Place, Tape]:
    """The charts as part of a chain, a new one if need be.

    Args:
        linked: whether the steps to come are to be differentiated; steps without derivatives
            before them are no part of the chain then.
    """
    tape = place.tape
    if tape is not None and tape.tensors[0] is not memory[0]:
        raise NdstackError("a state put together from parts of others given; use what start() or a step gave")
    if tape is not None and not (linked and place.time > tape.begin and not memory[6].requires_grad):
        return memory, place, tape
    memory, place = settled(memory, place)
    tensors = tuple(tensor.contiguous() for tensor in memory[:6])
    older = memory[6].requires_grad and torch.is_grad_enabled()
    tape = Tape(tensors[:5], place.layout, place.bottom_fix, place.time, older)
    return (*tensors, enclose(memory[6:], tape)), dataclasses.replace(place, tape=tape), tape


def settled(memory: Memory, place: Place) -> tuple[Memory, Place]:
    """The same charts, with links that are ordinary tensors in the graph of derivatives."""
    if place.tape is None:
        return memory, place
    dense = expose(memory[6], place.tape, place.time, memory[0], place.layout)
    return (*memory[:6], *dense), dataclasses.replace(place, tape=None)


def lost_too_much(memory: Memory) -> bool:
    """Whether any of the charts may have lost more than the guard allows."""
    return bool((torch.logsumexp(memory[5][:, :-1], -1) > LIMITS[memory[0].dtype]).any())
