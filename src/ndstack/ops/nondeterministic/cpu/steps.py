"""Steps of carried charts as differentiable operations, one a step.

What a step says about the chart before it is as large as the chart. To pass it from step to step as
an ordinary derivative would mean to write all of it at every step. Instead, steps that share a
chart's memory form a chain, a `Tape`. In the graph of derivatives they are tied together by empty
tensors, `tokens`, which only make them go backward in order; the derivatives are in a `Pass`, which
earlier steps read when they get there (`backward.gather`).

Where a chain begins and ends, the chart is an ordinary tensor again: `enclose` and `expose`.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu import step_loops
from ndstack.ops.nondeterministic.cpu.layout import Layout
from ndstack.ops.nondeterministic.cpu.scan import cost
from ndstack.ops.nondeterministic.cpu.tables import CHART, AdjointTable, ChartTable, as_array
from ndstack.ops.runtime import torch_internals
from ndstack.ops.runtime.addresses import KIND, address, array, of_table, optional, room, zeros
from ndstack.ops.runtime.autograd import in_own_precision, refuse_second_derivatives
from ndstack.ops.runtime.threads import share


class Pass:
    """The derivatives that one backward pass has left for the steps of a chain to come.

    Attributes:
        task: torch's number of the backward pass.
        columns, alpha: those by the chart's columns [B, size] and by log alpha [B, ends].
        end: the step that came first; 0 before that.
        invalid: [B], sequences all of whose derivatives from here on down are nan (see `guard`).
        table: for `step_loops`.
    """

    def __init__(self, tape: Tape, task: int) -> None:
        at = tape.layout
        self.tape, self.task, self.end = tape, task, 0
        self.columns = zeros(tape.dtype, tape.batch, at.size)
        self.alpha = zeros(tape.dtype, tape.batch, at.ends)
        self.invalid = np.zeros(tape.batch, np.uint8)
        self._to_invalidate: list[tuple[int, npt.NDArray[np.uint8]]] = []
        self.table: Any = None

    def begin_at(self, end: int) -> None:
        """Make room for what the steps from `end` down will compute (see `backward.Later`)."""
        tape, at = self.tape, self.tape.layout
        self.end = end
        users = np.zeros(end + 2, np.int64)
        last = np.arange(end + 1) + at.band - 1 if at.band else np.full(end + 1, end)
        count = np.minimum(last, end) - np.arange(end + 1) - 1
        count[: tape.begin + 1] = 0
        users[1:] = np.cumsum(np.maximum(count, 0)) * at.symbols * at.states**2
        back = at.states * ((at.band or end + 1) * at.kinds + 128)
        used = int(users[-1])
        wide = [
            (torch.float64, at.kinds**2),
            (tape.dtype, at.kinds * at.states),
            (tape.dtype, back),
            (tape.dtype, used),
        ]
        rooms = [zeros(dtype, tape.batch, size) for dtype, size in wide]
        wreplace, wpop, back_at, used_room = (
            address(part, dtype, tape.batch, size) for part, (dtype, size) in zip(rooms, wide, strict=True)
        )
        self.table = as_array(
            AdjointTable(
                begin=tape.begin,
                end=end,
                older=tape.older,
                alpha_size=at.ends,
                back_size=back,
                used_size=used,
                columns=address(self.columns, tape.dtype, tape.batch, at.size),
                alpha=address(self.alpha, tape.dtype, tape.batch, at.ends),
                wreplace=wreplace,
                wpop=wpop,
                back=back_at,
                used=used_room,
                used_at=of_table(users),
                invalid=of_table(self.invalid),
            )
        )
        self._kept = (rooms, users)
        self.at = of_table(self.table)

    def add(self, time: int, columns: Tensor | None, alpha: Tensor | None) -> None:
        """Add derivatives by the charts of some time that come from outside the chain."""
        at = self.tape.layout
        if columns is not None:
            end = int(at.start[time] + at.kinds * at.stride[time])
            self.columns[:, :end] += columns[:, :end]
        if alpha is not None:
            end = (time + 2) * at.kinds
            self.alpha[:, :end] += alpha[:, :end]
            self._to_invalidate.append((time, array(alpha[:, 0].isnan(), torch.bool, self.tape.batch)))

    def reach_back_to(self, time: int) -> None:
        """Mark sequences as invalid whose derivatives with respect to the chart of this time, or a
        later one, are nan.

        Steps after the time of such a chart are no part of what was computed from it.
        """
        for end, rows in self._to_invalidate:
            if end >= time:
                self.invalid |= rows


class Tape:
    """Charts of a batch as a chain of steps knows them.

    Args:
        tensors: the first five of `Memory`.
        layout, bottom_fix: of the charts.
        begin: the time at which the chain begins.
        older: whether the derivatives by the charts of that time are wanted.
    """

    def __init__(
        self, tensors: tuple[Tensor, ...], layout: Layout, bottom_fix: bool, begin: int, older: bool
    ) -> None:
        self.bottom_fix, self.begin, self.older = bottom_fix, begin, older
        self.batch, self.dtype = tensors[0].shape[0], tensors[0].dtype
        self.kind = KIND[self.dtype]
        self._passes: dict[int, Pass] = {}
        self._flags, self._used, self._flags_at = np.zeros((0, self.batch), np.uint8), 0, 0
        self.hold(tensors, layout)

    def hold(self, tensors: tuple[Tensor, ...], layout: Layout) -> None:
        """From now on, keep the charts here; all that they hold has been copied."""
        self.tensors, self.layout = tensors, layout
        self.table = as_array(
            ChartTable(
                layout.states,
                layout.symbols,
                layout.band,
                self.bottom_fix,
                layout.times,
                layout.size,
                of_table(layout.start),
                of_table(layout.stride),
                *self._places(),
            )
        )
        self.at = of_table(self.table)

    def _places(self) -> list[int]:
        """Where the charts are now."""
        shapes = self.layout.shapes(self.batch)
        dtypes = (self.dtype, *[torch.float64] * 4)
        parts = zip(self.tensors, dtypes, shapes[:5], strict=True)
        return [address(tensor, dtype, *shape) for tensor, dtype, shape in parts]

    def reach(self, start: int, steps: int) -> int:
        """The address of the table, for `steps` steps from the time `start` on, which must have room.

        The memory of a tensor can be moved under the eyes of its owner (`Tensor.share_memory_`).
        """
        if start < 0 or start + steps >= self.layout.times:
            raise NdstackError(f"a chart of {self.layout.times} times given to step {start + steps}")
        self.table[CHART.columns :] = self._places()
        return self.at

    def flags(self) -> tuple[npt.NDArray[np.uint8], int]:
        """A new array of `batch` flags, and its address; from a block, which is quicker than one by one."""
        if self._used == len(self._flags):
            self._flags, self._used = np.zeros((64, self.batch), np.uint8), 0
            self._flags_at = of_table(self._flags)
        self._used += 1
        return self._flags[self._used - 1], self._flags_at + (self._used - 1) * self.batch

    def current(self) -> Pass:
        """What the backward pass that is going on in this thread has left so far."""
        thread, task = threading.get_ident(), torch_internals.backward_pass()
        known = self._passes.get(thread)
        if known is None or known.task != task:
            known = self._passes[thread] = Pass(self, task)
        return known

    def forget(self) -> None:
        """The backward pass in this thread is over."""
        self._passes.pop(threading.get_ident(), None)


class Call:
    """One operation on a tape, and whether its results can be trusted.

    Args:
        start: the time before it.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm.
        lost: of `Memory`, to be changed in place.
    """

    __slots__ = ("all_sure", "attend", "limit", "lost", "start", "sure", "sure_at", "tape")

    def __init__(self, tape: Tape, start: int, attend: bool, limit: float, lost: Tensor) -> None:
        self.tape, self.start, self.attend, self.limit, self.lost = tape, start, attend, limit, lost
        self.sure, self.sure_at = tape.flags()
        self.all_sure = True


class _Advance(torch.autograd.Function):
    """Steps of carried charts, which are written in place.

    The log weights are given, [B, n, A] or [B, A], or as hidden states [B, H] with a layer.
    """

    @staticmethod
    @in_own_precision
    def forward(
        ctx: Any, token: Tensor, given: Tensor, weight: Tensor | None, bias: Tensor | None, call: Call
    ) -> Any:
        tape, start, dtype = call.tape, call.start, call.tape.dtype
        actions = given.contiguous()
        if weight is not None and bias is not None:
            actions = torch.addmm(bias, given, weight.t())
        kinds, steps = tape.layout.kinds, actions.shape[1] if actions.dim() == 3 else 1
        leading = (tape.batch, *actions.shape[1:-1])
        reading, attention, attention_at = room(dtype, *leading, kinds), token, 0
        if call.attend:
            span = (*leading, kinds, start + steps + 1)
            attention = zeros(dtype, *span)
            attention_at = address(attention, dtype, *span)
        at, lost = tape.reach(start, steps), address(call.lost, torch.float64, tape.batch, kinds + 1)
        given_at = address(actions, dtype, *leading, tape.layout.actions)
        where = given_at, address(reading, dtype, *leading, kinds), attention_at, call.sure_at

        def work(lo: int, hi: int) -> None:
            fine = step_loops.forward(tape.kind, at, lost, lo, hi, start, steps, *where, call.limit)
            if not fine:
                call.all_sure = False

        share(tape.batch, work, cost(tape.layout, start, steps) * tape.batch)
        ctx.call, ctx.steps = call, steps
        ctx.set_materialize_grads(False)
        if weight is None:
            ctx.save_for_backward(actions, reading, attention)
        else:
            ctx.save_for_backward(actions, reading, attention, given, weight)
        shown = attention if call.attend else None
        return reading, shown, actions if weight is not None else None, token.new_empty(0)

    @staticmethod
    @in_own_precision
    def backward(ctx: Any, *received: Tensor | None) -> Any:
        refuse_second_derivatives()
        actions, reading, attention, *layer = ctx.saved_tensors
        call: Call = ctx.call
        tape, start, steps = call.tape, call.start, ctx.steps
        shown = None if received[0] is None else received[0].contiguous()
        weights = None if received[1] is None else received[1].contiguous()
        run = tape.current()
        if run.table is None:
            run.begin_at(start + steps)
        run.reach_back_to(start + steps)
        dtype, kinds, at = tape.dtype, tape.layout.kinds, tape.reach(start, steps)
        grads, leading = room(dtype, *actions.shape), (tape.batch, *actions.shape[1:-1])
        given, span = (*leading, tape.layout.actions), (*leading, kinds, start + steps + 1)
        where = (
            address(actions, dtype, *given), address(reading, dtype, *leading, kinds),
            address(attention, dtype, *span) if call.attend else 0,
            optional(shown, dtype, *leading, kinds), optional(weights, dtype, *span),
            address(grads, dtype, *given), call.sure_at,
        )  # fmt: skip

        def work(lo: int, hi: int) -> None:
            step_loops.backward(tape.kind, at, run.at, lo, hi, start, steps, *where)

        share(tape.batch, work, 2 * cost(tape.layout, start, steps) * tape.batch)
        if start == tape.begin and not tape.older:
            tape.forget()
        if not layer:
            return None, grads, None, None, None
        if received[2] is not None:
            grads += received[2]
        hidden, weight = layer
        return None, grads @ weight, grads.t() @ hidden, grads.sum(0), None


class _Enclose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, columns: Tensor, alpha: Tensor, tape: Tape) -> Tensor:
        ctx.tape, ctx.sizes = tape, (columns.shape[1], alpha.shape[1])
        ctx.set_materialize_grads(False)
        return columns.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        refuse_second_derivatives()
        tape: Tape = ctx.tape
        run = tape.current()
        run.reach_back_to(tape.begin)
        if run.table is not None:
            step_loops.finish(tape.kind, tape.reach(tape.begin, 0), run.at, 0, tape.batch)
        tape.forget()
        size, ends = ctx.sizes  # the chart may have grown since; its first columns are where they were
        if run.invalid.any():
            rows = torch.from_numpy(run.invalid).bool()
            run.columns[rows] = run.alpha[rows] = math.nan
        return run.columns[:, :size], run.alpha[:, :ends], None


class _Expose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, tape: Tape, time: int, columns: Tensor, layout: Layout) -> Any:
        ctx.tape, ctx.time = tape, time
        ctx.set_materialize_grads(False)
        return links(columns, layout)

    @staticmethod
    def backward(ctx: Any, columns: Tensor | None, alpha: Tensor | None) -> Any:
        refuse_second_derivatives()
        ctx.tape.current().add(ctx.time, columns, alpha)
        return None, None, None, None, None


def links(columns: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Zeros like the derivatives by a chart, which take no memory."""
    nothing, batch = columns.new_zeros(()), columns.shape[0]
    return nothing.expand(batch, layout.size), nothing.expand(batch, layout.ends)


def enclose(dense: tuple[Tensor, ...], tape: Tape) -> Tensor:
    """The token with which a chain begins, from the links of an ordinary chart."""
    apply: Any = _Enclose.apply
    token: Tensor = apply(*dense, tape) if tape.older else dense[0].new_empty(0)
    return token


def expose(token: Tensor, tape: Tape, time: int, columns: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    """The links of an ordinary chart, from the token of a chain at some time.

    Args:
        columns, layout: of the chart; the tape may keep its own in larger memory by now.
    """
    if not token.requires_grad:
        return links(columns, layout)
    apply: Any = _Expose.apply
    return tuple(apply(token, tape, time, columns.detach(), layout))


def advance(
    token: Tensor, given: Tensor, layer: tuple[Tensor, Tensor] | None, call: Call
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Some steps of the charts of `call.tape`.

    Args:
        token: from the steps before.
        given: the log weights [B, n, A] or, for one step, [B, A]; or hidden states [B, H].
        layer: weight [A, H] and bias [A] that make the latter log weights.

    Returns:
        Probabilities [B, n, K] or [B, K], attention [B, n, K, time + n + 1] or None, the log
        weights, and the token for the steps to come.
    """
    apply: Any = _Advance.apply
    reading, attention, actions, token = apply(token, given, *(layer or (None, None)), call)
    return reading, attention, given if actions is None else actions, token
