"""Chains of steps: how derivatives pass from step to step of charts that share their memory.

What a step says about the chart before it is as large as the chart. To pass it on as an ordinary derivative
would mean to write all of it at every step. Instead, steps in one store form a `Chain`. In the graph of
derivatives they are tied together by empty tensors, `tokens`, which only make them go backward in order; the
derivatives are in a `BackwardPass`, which earlier steps read when their turn comes (`backward.gather`).

Where a chain begins and ends, the chart is represented by ordinary tensors again: `enclose` and `expose`.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu.tables import CHART, AdjointTable, as_array
from ndstack.ops.nondeterministic.store import Store
from ndstack.ops.runtime import torch_internals
from ndstack.ops.runtime.addresses import KIND, address, array, empty, of_table, rows, same_places, zeros
from ndstack.ops.runtime.autograd import Context, Operation, refuse_second_derivatives
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import step_loops
else:
    step_loops = LazyModule("ndstack.ops.nondeterministic.cpu.step_loops")


Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of a controller: [4H, R], [4H, H], [C, H], with contiguous rows, and [C], contiguous."""


Strides = tuple[int, int, int]
"""How far the rows of the three matrices are from each other."""


class BackwardPass:
    """The derivatives that one backward pass has left for the steps of a chain to come.

    Attributes:
        number: of the backward pass, for torch.
        alpha: [B, ends], the derivatives with respect to log alpha.
        invalid: [B], sequences all of whose derivatives from here on down are nan (see `invalid_sequences`).
        at: the address of an `AdjointTable`; 0 before the first step.
        about_weights: what steps have left for the steps before them to say about a controller's weights.
        end: the last time of the steps that are gone through.
    """

    def __init__(self, chain: Chain, number: int) -> None:
        at = chain.store.layout
        self.chain, self.number, self.at = chain, number, 0
        self._columns: Tensor | None = None
        self.alpha = zeros(chain.dtype, chain.batch, at.ends)
        self.invalid = np.zeros(chain.batch, np.uint8)
        self.about_weights: list[tuple[Tensor, ...]] = []
        self.end = 0
        self._rooms: list[tuple[Tensor, ...]] = []
        self._to_invalidate: list[tuple[int, npt.NDArray[np.uint8]]] = []

    @property
    def columns(self) -> Tensor:
        """[B, size], the derivatives with respect to the chart's columns."""
        if self._columns is None:
            self._columns = zeros(self.chain.dtype, self.chain.batch, self.chain.store.layout.size)
        return self._columns

    def begin_at(self, end: int) -> None:
        """Make room for what the steps from `end` down will compute (see `backward.Later`)."""
        self.end = end
        chain, at = self.chain, self.chain.store.layout
        if self._columns is None and not chain.older:  # nobody else will see them, so no more than is needed
            self._columns = zeros(chain.dtype, chain.batch, at.size_until(end))
        columns, size = self.columns, self.columns.shape[1]
        back = at.states * ((at.band or end + 1) * at.kinds + 128)
        used = (end - chain.begin) * (back + at.kinds)
        wide = zeros(torch.float64, chain.batch, at.kinds**2)
        sizes = (at.kinds * at.states, back, used)
        rooms = [zeros(chain.dtype, chain.batch, size) for size in sizes[:2]]
        rooms.append(empty(chain.dtype, chain.batch, used))
        wpop, back_at, used_room = (
            address(room, chain.dtype, chain.batch, size) for room, size in zip(rooms, sizes, strict=True)
        )
        table = AdjointTable(
            begin=chain.begin,
            end=end,
            older=chain.older,
            columns_size=size,
            alpha_size=at.ends,
            back_size=back,
            used_size=used,
            columns=address(columns, chain.dtype, chain.batch, size),
            alpha=address(self.alpha, chain.dtype, chain.batch, at.ends),
            wreplace=address(wide, torch.float64, chain.batch, at.kinds**2),
            wpop=wpop,
            back=back_at,
            used=used_room,
            invalid=of_table(self.invalid),
        )
        self._kept = as_array(table), wide, rooms
        self.at = of_table(self._kept[0])

    def room_for(self, time: int, *sizes: int) -> list[Tensor]:
        """Memory for derivatives of the step that ends at this time, [B, size] each.

        That of all steps is made at once, since to make a tensor takes as long as a tenth of a step.
        """
        if [len(room) and room[0].shape[1] for room in self._rooms] != [*sizes]:
            steps, chain = self.end - self.chain.begin, self.chain
            self._rooms = [empty(chain.dtype, steps, chain.batch, size).unbind(0) for size in sizes]
        return [room[time - self.chain.begin - 1] for room in self._rooms]

    def add(self, time: int, columns: Tensor | None, alpha: Tensor | None) -> None:
        """Add derivatives with respect to the charts of some time that come from outside the chain."""
        at = self.chain.store.layout
        if columns is not None:
            end = at.columns_until(time)
            self.columns[:, :end] += columns[:, :end]
        if alpha is not None:
            end = at.ends_until(time)
            self.alpha[:, :end] += alpha[:, :end]
            self._to_invalidate.append((time, array(alpha[:, 0].isnan(), torch.bool, self.chain.batch)))

    def reach_back_to(self, time: int) -> None:
        """Mark sequences as invalid whose derivatives with respect to the chart of a time are nan.

        Later charts count, too. Steps after the time of such a chart are no part of what was computed from
        it.
        """
        for end, which in self._to_invalidate:
            if end >= time:
                self.invalid |= which


@dataclasses.dataclass(slots=True)
class _Driven:
    """The weights of the controller that the last step of a chain had.

    Attributes:
        tensors: which they were.
        properties: version of each, and whether there are derivatives with respect to it.
        places, strides: their addresses, and the strides of the three matrices.
        time: after the step.
    """

    tensors: list[weakref.ref[Tensor]]
    properties: list[tuple[int, bool]]
    places: list[int]
    strides: Strides
    time: int = -1


class Chain:
    """Steps that follow each other in one store.

    Args:
        store: of the charts.
        begin: the time at which the chain begins.
        older: whether the derivatives with respect to the charts of that time are wanted.
    """

    def __init__(self, store: Store, begin: int, older: bool) -> None:
        self.begin, self.older = begin, older
        self.batch, self.dtype = store.batch, store.dtype
        self.kind = KIND[self.dtype]
        self._passes: dict[int, BackwardPass] = {}
        self._flags, self._used, self._flags_at = np.zeros((0, self.batch), np.uint8), 0, 0
        self._driven = _Driven([], [], [], (0, 0, 0))
        self._gates: Tensor | None = None
        self._gates_used = self._gates_at = 0
        self.hold(store)

    def hold(self, store: Store) -> None:
        """From now on, the charts are here; all that they hold has been copied."""
        self.store = store
        self._table, self._places = as_array(store.table()), store.addresses()
        self._table_at = of_table(self._table)

    def reach(self, start: int, steps: int) -> int:
        """The address of the `ChartTable`, for `steps` steps from the time `start` on, which must have room.

        The memory of a tensor can be moved behind the back of its owner (`Tensor.share_memory_`).
        """
        times, tensors = self.store.layout.times, self.store.tensors
        if start < 0 or start + steps >= times:
            raise NdstackError(f"a chart of {times} times given to step {start + steps}")
        if not same_places(tensors, self._places):
            self._places = self.store.addresses()
            self._table[CHART.columns :] = self._places
        return self._table_at

    def drive(self, time: int, weights: Weights) -> tuple[bool, list[int], Strides]:
        """Take note of the weights of a controller at the step after this time.

        Returns:
            Whether the step before it had the same weights: the same tensors, not changed since, and with
            derivatives or without, as before. Their addresses, and the strides of the three matrices.
        """
        known, now = self._driven, [(tensor._version, tensor.requires_grad) for tensor in weights]
        same = known.properties == now and same_places(weights, known.places)
        if same:
            (first, second, third, last), tensors = known.tensors, weights
            same = first() is tensors[0] and second() is tensors[1]
            same = same and third() is tensors[2] and last() is tensors[3]
        if not same:
            refs = [weakref.ref(tensor) for tensor in weights]
            known = self._driven = _Driven(refs, now, *self._places_of(weights))
        again, known.time = same and known.time == time, time + 1
        return again, known.places, known.strides

    def _places_of(self, weights: Weights) -> tuple[list[int], Strides]:
        at, units = self.store.layout, weights[1].shape[1]
        first, stride = rows(weights[0], self.dtype, 4 * units, at.kinds)
        second, second_stride = rows(weights[1], self.dtype, 4 * units, units)
        third, third_stride = rows(weights[2], self.dtype, at.actions, units)
        last = address(weights[3], self.dtype, at.actions)
        return [first, second, third, last], (stride, second_stride, third_stride)

    def gates(self, units: int) -> tuple[Tensor, int]:
        """Room for what a controller leaves for its gradient, [B, 4H], at an address in a block of such."""
        if self._gates is None or self._gates_used == len(self._gates) or self._gates.shape[2] != 4 * units:
            self._gates = empty(self.dtype, 16, self.batch, 4 * units)
            self._gates_used = 0
            self._gates_at = address(self._gates, self.dtype, 16, self.batch, 4 * units)
        self._gates_used += 1
        each = self._gates.element_size() * self.batch * 4 * units
        return self._gates, self._gates_at + (self._gates_used - 1) * each

    def flags(self) -> tuple[npt.NDArray[np.uint8], int]:
        """A new array of one flag per sequence, and its address; from a block, which is quicker."""
        if self._used == len(self._flags):
            self._flags, self._used = np.zeros((64, self.batch), np.uint8), 0
            self._flags_at = of_table(self._flags)
        self._used += 1
        return self._flags[self._used - 1], self._flags_at + (self._used - 1) * self.batch

    def current(self) -> BackwardPass:
        """What the backward pass that is running in this thread has left so far."""
        thread, number = threading.get_ident(), torch_internals.backward_pass()
        known = self._passes.get(thread)
        if known is None or known.number != number:
            known = self._passes[thread] = BackwardPass(self, number)
        return known

    def forget(self) -> None:
        """The backward pass in this thread is over."""
        self._passes.pop(threading.get_ident(), None)


class _Enclose(Operation):
    @staticmethod
    def forward(ctx: Context, columns: Tensor, alpha: Tensor, chain: Chain) -> Tensor:
        ctx.chain, ctx.sizes = chain, (columns.shape[1], alpha.shape[1])
        ctx.set_materialize_grads(False)
        return columns.new_empty(0)

    @staticmethod
    def backward(ctx: Context, *received: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        chain: Chain = ctx.chain
        current = chain.current()
        current.reach_back_to(chain.begin)
        if current.at:
            step_loops.finish(chain.kind, chain.reach(chain.begin, 0), current.at, 0, chain.batch)
        chain.forget()
        size, ends = ctx.sizes  # the chart may have grown since; its first columns are where they were
        if current.invalid.any():
            rows = torch.from_numpy(current.invalid).bool()
            current.columns[rows] = current.alpha[rows] = math.nan
        return current.columns[:, :size], current.alpha[:, :ends], None


class _Expose(Operation):
    @staticmethod
    def forward(ctx: Context, token: Tensor, chain: Chain, time: int, store: Store) -> tuple[Tensor, Tensor]:
        ctx.chain, ctx.time = chain, time
        ctx.set_materialize_grads(False)
        return zero_links(store)

    @staticmethod
    def backward(ctx: Context, columns: Tensor | None, alpha: Tensor | None) -> tuple[None, None, None, None]:
        refuse_second_derivatives()
        ctx.chain.current().add(ctx.time, columns, alpha)
        return None, None, None, None


def zero_links(store: Store) -> tuple[Tensor, Tensor]:
    """Zeros of the shapes of the derivatives with respect to a chart, which take no memory."""
    nothing = store.columns.new_zeros(())
    return nothing.expand(store.batch, store.layout.size), nothing.expand(store.batch, store.layout.ends)


def enclose(links: tuple[Tensor, ...], chain: Chain) -> Tensor:
    """The token with which a chain begins, from the links of an ordinary chart."""
    if not chain.older:
        return links[0].new_empty(0)
    token: Tensor = _Enclose.apply(*links, chain)
    return token


def expose(token: Tensor, chain: Chain, time: int, store: Store) -> tuple[Tensor, ...]:
    """The links of an ordinary chart, from the token of a chain at some time.

    Args:
        store: of the chart; the chain may keep its own in larger memory by now.
    """
    if not token.requires_grad:
        return zero_links(store)
    links: tuple[Tensor, ...] = _Expose.apply(token, chain, time, store)
    return links
