"""Steps of charts by compiled code, as one differentiable operation per call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu.chain import BackwardPass, Chain
from ndstack.ops.nondeterministic.cpu.tables import STEP, UNTRUSTED, StepTable
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.runtime.addresses import (
    address,
    empty,
    known_addresses,
    of_numbers,
    of_table,
    optional,
    zeros,
)
from ndstack.ops.runtime.autograd import Context, Operation, in_own_precision, refuse_second_derivatives
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.tracing import refuse_transforms

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import step_loops
    from ndstack.ops.runtime import short_calls
else:
    short_calls = LazyModule("ndstack.ops.runtime.short_calls")
    step_loops = LazyModule("ndstack.ops.nondeterministic.cpu.step_loops")


class Advanced(NamedTuple):
    """What `advance` gives.

    Attributes:
        reading: probabilities, [B, n, K], or [B, K] for one step.
        attention: [B, n, K, time + n + 1], or None.
        actions: the log weights.
        all_trusted: whether no sequence is in need of a wider format.
        flags: [B], what is said of each (see `tables`).
        chart: the charts afterwards.
    """

    reading: Tensor
    attention: Tensor | None
    actions: Tensor
    all_trusted: bool
    flags: npt.NDArray[np.uint8]
    chart: Chart

    def untrusted(self) -> Tensor:
        """[B], which sequences are in need of a wider format."""
        return torch.from_numpy(self.flags) == UNTRUSTED


class StepCall:
    """One operation on a chain, and whether its results can be trusted.

    Args:
        chart: the charts before it, which are part of the chain and have room for its steps.
        steps: how many there are.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.

    Attributes:
        lost: of the charts, to be changed in place.
        flags, flags_at: what is said of each sequence (see `tables`), and its address.
    """

    __slots__ = (
        *("all_trusted", "attend", "chain", "flags", "flags_at", "limit", "lost", "start", "steps"),
        "store",
    )

    def __init__(
        self, chart: Chart, chain: Chain, steps: int, attend: bool = False, limit: float | None = None
    ) -> None:
        self.chain, self.store, self.attend = chain, chart.store, attend
        self.start, self.steps = chart.time, steps
        self.limit = _limit(LIMITS[chain.dtype] if limit is None else limit)[1]
        self.lost = chart.lost.clone(memory_format=torch.contiguous_format)
        address(self.lost, torch.float64, chain.batch, chain.store.layout.kinds + 1)
        self.flags, self.flags_at = chain.flags()
        self.all_trusted = True

    def chart_after(self, token: Tensor) -> Chart:
        """The charts after the steps, which are represented by this token."""
        time = self.start + self.steps
        self.store.filled.reached(time)
        return Chart(self.store, self.lost, time, (token,), self.chain)

    def forward(self, net: int, actions: int, reading: int, attention: int = 0) -> None:
        """Make the steps, with what is at these addresses (see `StepTable`)."""
        self._call(step_loops.forward, 1, net, actions, reading, attention)

    def begin_backward(self) -> BackwardPass:
        """What later steps have left for the gradient of this operation."""
        current, end = self.chain.current(), self.start + self.steps
        if not current.at:
            current.begin_at(end)
        current.reach_back_to(end)
        return current

    def backward(
        self,
        current: BackwardPass,
        net: int,
        actions: int,
        reading: int,
        attention: int,
        grad_reading: int,
        grad_attention: int,
        grads: int,
    ) -> None:
        """Compute the derivatives, with what is at these addresses, and leave what earlier steps need."""
        given = net, actions, reading, attention, current.at, grad_reading, grad_attention, grads
        self._call(step_loops.backward, 2, *given)
        if self.start == self.chain.begin and not self.chain.older:
            self.chain.forget()

    def _call(self, work: Callable[..., None], passes: int, *given: int) -> None:
        chain, start, steps = self.chain, self.start, self.steps
        at, (lost,) = chain.store.layout, known_addresses((self.lost,))
        table, place = of_numbers(
            StepTable(start, steps, 0, chain.reach(start, steps), lost, self.flags_at, self.limit, *given)
        )
        short_calls.call(work, chain.kind, place, chain.batch, passes * at.cost(start, steps) * chain.batch)
        if table[STEP.untrusted]:
            self.all_trusted = False


@functools.cache
def _limit(value: float) -> tuple[npt.NDArray[np.float64], int]:
    """A limit where compiled code can read it, and its address."""
    kept = np.array([value])
    return kept, of_table(kept)


def begin_steps(
    chart: Chart, steps: int, differentiable: bool, attend: bool = False, limit: float | None = None
) -> tuple[Tensor, StepCall]:
    """The token of charts with room for so many steps, and the operation that makes them."""
    refuse_transforms()
    chart, chain = chart.grow(steps).chained(differentiable)
    return chart.links[0], StepCall(chart, chain, steps, attend, limit)


def advance(
    chart: Chart,
    given: Tensor,
    layer: tuple[Tensor, Tensor] | None = None,
    *,
    attend: bool = False,
    limit: float | None = None,
) -> Advanced:
    """Further steps, in charts that are made to have room for them.

    Args:
        chart: the charts so far.
        given: [B, n, A] or [B, A], log weights, of the charts' dtype; or [B, H], see `layer`.
        layer: weight [A, H] and bias [A] that make hidden states log weights.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.
    """
    steps = given.shape[1] if given.dim() == 3 else 1
    differentiable = torch.is_grad_enabled() and (
        given.requires_grad or (layer is not None and layer[0].requires_grad)
    )
    token, call = begin_steps(chart, steps, differentiable, attend, limit)
    reading, attention, actions, token = _Advance.apply(token, given, *(layer or (None, None)), call)
    actions = given if actions is None else actions
    return Advanced(reading, attention, actions, call.all_trusted, call.flags, call.chart_after(token))


class _Advance(Operation):
    """Steps of charts, which are written in place.

    The log weights are given, [B, n, A] or [B, A], or as hidden states [B, H] with a layer.
    """

    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context, token: Tensor, given: Tensor, weight: Tensor | None, bias: Tensor | None, call: StepCall
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        chain, dtype, at = call.chain, call.chain.dtype, call.chain.store.layout
        actions = given.contiguous()
        if weight is not None and bias is not None:
            actions = torch.addmm(bias, given, weight.t())
        leading = (chain.batch, *actions.shape[1:-1])
        reading, attention, attention_at = empty(dtype, *leading, at.kinds), token, 0
        if call.attend:
            span = (*leading, at.kinds, call.start + call.steps + 1)
            attention = zeros(dtype, *span)
            attention_at = address(attention, dtype, *span)
        given_at = address(actions, dtype, *leading, at.actions)
        call.forward(0, given_at, address(reading, dtype, *leading, at.kinds), attention_at)
        ctx.call = call
        ctx.set_materialize_grads(False)
        if weight is None:
            ctx.save_for_backward(actions, reading, attention)
        else:
            ctx.save_for_backward(actions, reading, attention, given, weight)
        shown = attention if call.attend else None
        return reading, shown, actions if weight is not None else None, token.new_empty(0)

    @staticmethod
    @in_own_precision
    def backward(ctx: Context, *received: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        actions, reading, attention, *layer = ctx.saved_tensors
        call: StepCall = ctx.call
        chain, dtype, at = call.chain, call.chain.dtype, call.chain.store.layout
        shown = None if received[0] is None else received[0].contiguous()
        weights = None if received[1] is None else received[1].contiguous()
        leading = (chain.batch, *actions.shape[1:-1])
        grads, given = empty(dtype, *actions.shape), (*leading, at.actions)
        span = (*leading, at.kinds, call.start + call.steps + 1)
        call.backward(
            call.begin_backward(), 0,
            address(actions, dtype, *given), address(reading, dtype, *leading, at.kinds),
            address(attention, dtype, *span) if call.attend else 0,
            optional(shown, dtype, *leading, at.kinds), optional(weights, dtype, *span),
            address(grads, dtype, *given),
        )  # fmt: skip
        if not layer:
            return None, grads, None, None, None
        if received[2] is not None:
            grads += received[2]
        hidden, weight = layer
        return None, grads @ weight, grads.t() @ hidden, grads.sum(0), None
