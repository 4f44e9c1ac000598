"""The chart of Lang's algorithm as one value: what a nondeterministic stack carries from step to step.

A chart lies in a `Store`, memory that grows at its end. Charts share a store as long as each of them has one
successor; a second successor (beam search) gets a copy. With a window the chart is moved to the beginning
of new memory when the store is full, and keeps the last D + 1 times.

In the graph of derivatives a chart is represented by two `links`, tensors that take no memory, whose
gradients are the derivatives with respect to the columns and to log alpha. Between steps in one store that
have no other successors, the token of a `Chain` takes their place.

Only this module, `store`, `cpu.layout` and the compiled code know where the numbers of a chart are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu.chain import Chain, enclose, expose, zero_links
from ndstack.ops.nondeterministic.cpu.layout import Layout, layout
from ndstack.ops.nondeterministic.log_space import LogSpaceChart
from ndstack.ops.nondeterministic.store import Store
from ndstack.ops.runtime.addresses import KIND, empty, written, zeros
from ndstack.ops.runtime.autograd import Context, Operation
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import forward
else:
    forward = LazyModule("ndstack.ops.nondeterministic.cpu.forward")

_LARGEST_SIZE, _LARGEST_CHART, _MOST_KINDS = 10_000_000, 2**31, 10_000
"""Limits for charts from files: on times and sizes, on numbers in all charts, and on configuration types."""


class PackedChart(NamedTuple):
    """A chart for a file: those times of it that later steps can see."""

    layout: Sequence[int]
    bottom_fix: bool
    time: int
    columns: Tensor
    times: Sequence[Tensor]
    lost: Tensor


@dataclasses.dataclass(eq=False, slots=True)
class Chart:
    """The charts of a batch of stacks on a CPU after some step, treated as immutable.

    Attributes:
        store: where the numbers are.
        lost: [B, K + 1]. The first K numbers are logs of bounds on the mass of runs lost to underflow, for
            each configuration type; the first of them is inf if the chart is not to be trusted, and nan if
            its sequence is invalid (see `invalid_sequences`). The last number is the smallest positive one of
            the whole chart.
        time: the newest time in the store. Without a window this is the number of steps so far; with one it
            is smaller once the chart has been moved.
        links: what represents the chart in the graph of derivatives; the token, if it is part of a chain.
        chain: the chain of steps that the chart is part of.
        log_space: the same charts in log space, if there is a sequence that float64 has lost. Without a
            window, these alone are continued from then on, and the store is empty.
    """

    store: Store
    lost: Tensor
    time: int = 0
    links: tuple[Tensor, ...] = ()
    chain: Chain | None = None
    log_space: LogSpaceChart | None = None

    @classmethod
    def empty(cls, batch: int, layout: Layout, bottom_fix: bool, dtype: torch.dtype) -> Self:
        """Charts without derivatives, in uninitialised memory; the first step writes time 0."""
        lost = empty(torch.float64, *layout.shapes(batch)[5])
        return cls(Store.empty(batch, layout, bottom_fix, dtype), lost)

    @classmethod
    def start(
        cls,
        batch: int,
        states: int,
        symbols: int,
        band: int,
        bottom_fix: bool,
        steps: int,
        dtype: torch.dtype,
    ) -> Self:
        """Charts at time 0, with room for `steps` steps or more; the first step writes its numbers.

        Args:
            band: the window D, or 0 without one.
        """
        times = steps + 1 if steps > 1 else _likely_times(states * symbols)
        chart = cls.empty(batch, layout(states, symbols, max(times, 4 * (band + 1)), band), bottom_fix, dtype)
        chart.links = zero_links(chart.store)
        return chart

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the columns."""
        return self.store.dtype

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that hold numbers."""
        return *self.store.tensors, self.lost

    @property
    def only_in_log_space(self) -> bool:
        """Whether the store is empty."""
        return self.log_space is not None and self.store.layout.band == 0

    def continued_by(self, log_space: LogSpaceChart, steps: int) -> Chart:
        """The charts so many steps later, which are known in log space."""
        at, store = self.store.layout, self.store
        if at.band:
            return dataclasses.replace(self, time=self.time + steps, log_space=log_space)
        if not self.only_in_log_space:
            nothing = layout(at.states, at.symbols, 1, 0)
            store = Store.empty(store.batch, nothing, store.bottom_fix, store.dtype)
        return Chart(store, self.lost, self.time + steps, zero_links(store), log_space=log_space)

    def requires_grad(self) -> bool:
        """Whether derivatives with respect to the chart are wanted."""
        return self.links[0].requires_grad

    def settle(self) -> Chart:
        """The same chart, with links that are ordinary tensors in the graph of derivatives."""
        if self.chain is None:
            return self
        links = expose(self.links[0], self.chain, self.time, self.store)
        return Chart(self.store, self.lost, self.time, links, log_space=self.log_space)

    def map(self, change: Callable[[Tensor], Tensor]) -> Chart:
        """The same chart with every tensor changed: detached, moved, or with other rows of the batch."""
        own = self.settle()
        links = tuple(change(link) for link in own.links)
        wide = None if own.log_space is None else own.log_space.map(change)
        return Chart(own.store.map(change), change(own.lost), own.time, links, log_space=wide)

    def chained(self, differentiable: bool) -> tuple[Chart, Chain]:
        """The chart as part of a chain of steps, a new one if need be.

        Args:
            differentiable: whether the steps to come are to be differentiated. If so, earlier steps without
                derivatives are not part of the chain.
        """
        chain = self.chain
        if chain is not None and chain.store is not self.store:
            raise NdstackError(
                "a state put together from parts of others given; use what start() or a step gave"
            )
        if chain is not None and not (
            differentiable and self.time > chain.begin and not self.requires_grad()
        ):
            return self, chain
        own = self.settle()
        store = own.store.contiguous()
        chain = Chain(store, self.time, own.requires_grad() and torch.is_grad_enabled())
        return Chart(store, own.lost, self.time, (enclose(own.links, chain),), chain), chain

    def grow(self, steps: int) -> Chart:
        """The same chart in memory where `steps` more steps can be written, exclusively by the caller."""
        old, time, band = self.store, self.time, self.store.layout.band
        enough, may_write = time + steps + 1 <= old.layout.times, old.filled.claim(time)
        if enough and may_write:
            return self
        chain = self.chain if may_write and not band else None
        links = self.links if chain is not None else self.settle().links
        shift = time - band if band and not enough and time > band else 0
        times = old.layout.times if enough else max(time - shift + steps + 1, 2 * (time - shift))
        at = layout(old.layout.states, old.layout.symbols, times, band)
        store = Store.empty(old.batch, at, old.bottom_fix, old.dtype, time - shift)
        move = _Move(old.layout, store, time, shift)
        move.copy(old)
        if chain is not None:
            chain.hold(store)
        elif at is not old.layout or shift:
            links = _MoveLinks.apply(*links, move)
        return Chart(store, self.lost.clone(), time - shift, links, chain)

    def arrays(self, end: int) -> tuple[forward.Shape, forward.Past]:
        """Return the arrays for compiled loops over sequences, which will write the times up to `end`."""
        store, at = self.store, self.store.layout
        if not 0 <= end < at.times:
            raise NdstackError(f"a chart of {at.times} times given to step {end}")
        dtypes = (self.dtype, *[torch.float64] * 5)
        parts = zip(self.tensors, dtypes, at.shapes(store.batch), strict=True)
        past = forward.Past(*(written(tensor, dtype, *shape) for tensor, dtype, shape in parts))
        return forward.Shape(at.states, at.symbols, at.band, store.bottom_fix, at.start, at.stride), past

    def pack(self) -> PackedChart:
        """What a file has to hold; no derivatives."""
        at, time, store = self.store.layout, self.time, self.store
        first = at.first_seen(time)
        return PackedChart(
            [at.states, at.symbols, at.times, at.band],
            store.bottom_fix,
            time,
            store.columns[:, at.columns_seen(time)],
            [part[:, first : time + 1] for part in store.tensors[1:]],
            self.lost,
        )

    @classmethod
    def unpack(cls, packed: PackedChart) -> Chart:
        """Return the chart that `pack` took apart; raise ValueError if it is malformed."""
        at, time, columns = _checked_layout(packed), packed.time, packed.columns
        batch, seen, first = len(columns), at.columns_seen(time), at.first_seen(time)
        each = (batch, time + 1 - first, at.kinds)
        masses = (*each[:2], at.band + 1, at.kinds) if at.band else (batch, 0, 0, 0)
        shapes = [(batch, seen.stop - seen.start), each, each, masses, each, (batch, at.kinds + 1)]
        given = [columns, *packed.times, packed.lost]
        if [tuple(tensor.shape) for tensor in given] != shapes:
            raise ValueError(f"a chart of shapes {[list(tensor.shape) for tensor in given]}, not {shapes}")
        dtypes = [columns.dtype if columns.dtype in KIND else torch.float64, *[torch.float64] * 5]
        if [tensor.dtype for tensor in given] != dtypes or batch * at.size > _LARGEST_CHART:
            raise ValueError(
                f"a chart of {[str(part.dtype) for part in given]} and {batch} x {at.size} numbers"
            )
        store = Store.empty(batch, at, packed.bottom_fix, columns.dtype, time)
        store.columns[:, seen] = columns
        for target, source in zip(store.tensors[1:], packed.times, strict=True):
            target[:, first : time + 1] = source
        return cls(store, packed.lost.clone(), time, zero_links(store))

    def fits(self, automaton: tuple[int, int, int, bool], batch: int, device: torch.device) -> bool:
        """Whether these are charts of such an automaton, with tensors of the right sizes.

        Args:
            automaton: states, symbols, the window or 0, and whether it has the bottom fix.
            batch: how many charts there should be.
            device: where they should be, if not on the CPU.
        """
        at = self.store.layout
        parts: tuple[object, ...] = (*self.tensors, *self.links)
        shapes = at.shapes(batch)
        if self.chain is None:
            shapes = (*shapes, (batch, at.size), (batch, at.ends))
        known = (at.states, at.symbols, at.band, self.store.bottom_fix) == automaton
        return (
            known
            and (0 <= self.time < at.times or self.only_in_log_space)
            and len(parts) == 6 + (2 if self.chain is None else 1)
            and all(isinstance(part, Tensor) and part.layout is torch.strided for part in parts)
            and all(
                part.shape == shape for part, shape in zip((*self.tensors, *self.links), shapes, strict=False)
            )
            and self.dtype in KIND
            and all(part.dtype is torch.float64 for part in self.tensors[1:])
            and all(part.device.type in ("cpu", device.type) for part in self.tensors)
            and (self.chain is not None or at.is_sound())
        )


def _likely_times(kinds: int) -> int:
    """For how many times to make room at the first step: about a megabyte, mostly untouched."""
    return max(32, min(128, math.isqrt(2**19 // kinds**2)))


def _checked_layout(packed: PackedChart) -> Layout:
    """The layout of a packed chart, not larger than a chart of that time would have made it."""
    sizes, time = (*packed.layout,), packed.time
    if len(sizes) != 4 or not all(type(size) is int and size < _LARGEST_SIZE for size in (*sizes, time)):
        raise ValueError(f"a chart of sizes {sizes} at time {time}")
    states, symbols, times, band = sizes
    if (
        not 0 <= time < times <= max(2 * time, 128, 4 * (band + 1)) + 4
        or min(states, symbols) < 1
        or band < 0
        or states * symbols > _MOST_KINDS
        or type(packed.bottom_fix) is not bool
    ):
        raise ValueError(f"a chart of {states} states and {symbols} symbols at time {time} of {times}")
    return layout(states, symbols, times, band)


class _Move:
    """Which part of an old store becomes the beginning of a new one."""

    def __init__(self, old: Layout, new: Store, time: int, shift: int) -> None:
        self.new, self.time, self.shift = new, time, shift
        each = int(old.stride[0]) * old.kinds if old.band else 0
        self.columns = slice(shift * each, (time + 1) * each if old.band else old.columns_until(time))
        self.ends = slice(shift * old.kinds, old.ends_until(time))

    def copy(self, old: Store) -> None:
        """Copy all numbers."""
        part = old.columns[:, self.columns]
        self.new.columns[:, : part.shape[1]] = part
        for target, source in zip(self.new.tensors[1:], old.tensors[1:], strict=True):
            if source.numel():
                target[:, : self.time - self.shift + 1] = source[:, self.shift : self.time + 1]


class _MoveLinks(Operation):
    @staticmethod
    def forward(ctx: Context, columns: Tensor, alpha: Tensor, move: _Move) -> tuple[Tensor, ...]:
        ctx.move, ctx.shapes = move, (columns.shape, alpha.shape)
        ctx.set_materialize_grads(False)
        return zero_links(move.new)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        results: list[Tensor | None] = []
        for grad, shape, kept in zip(grads, ctx.shapes, (ctx.move.columns, ctx.move.ends), strict=True):
            back = None
            if grad is not None:
                back = zeros(grad.dtype, *shape)
                back[:, kept] = grad[:, : kept.stop - kept.start]
                back[grad[:, 0].isnan()] = math.nan  # an invalid sequence, wherever its chart is
            results.append(back)
        return *results, None
