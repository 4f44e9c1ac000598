"""Steps of charts by compiled code, as one differentiable operation per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu.chain import Chain
from ndstack.ops.nondeterministic.cpu.tables import UNTRUSTED
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.runtime.addresses import address, empty, optional, zeros
from ndstack.ops.runtime.autograd import Context, Operation, in_own_precision, refuse_second_derivatives
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.threads import share
from ndstack.ops.runtime.tracing import refuse_transforms

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import step_loops
else:
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


class _Call:
    """One operation on a chain, and whether its results can be trusted.

    Args:
        start: the time before it.
        attend: whether the attention is wanted.
        limit: how much mass may be lost, as a logarithm.
        lost: of the chart, to be changed in place.
    """

    __slots__ = ("all_trusted", "attend", "chain", "flags", "flags_at", "limit", "lost", "start")

    def __init__(self, chain: Chain, start: int, attend: bool, limit: float, lost: Tensor) -> None:
        self.chain, self.start, self.attend, self.limit, self.lost = chain, start, attend, limit, lost
        self.flags, self.flags_at = chain.flags()
        self.all_trusted = True


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
    refuse_transforms()
    steps = given.shape[1] if given.dim() == 3 else 1
    differentiable = torch.is_grad_enabled() and (
        given.requires_grad or (layer is not None and layer[0].requires_grad)
    )
    chart, chain = chart.grow(steps).chained(differentiable)
    lost = chart.lost.clone(memory_format=torch.contiguous_format)
    call = _Call(chain, chart.time, attend, LIMITS[chain.dtype] if limit is None else limit, lost)
    reading, attention, actions, token = _Advance.apply(chart.links[0], given, *(layer or (None, None)), call)
    time = chart.time + steps
    chart.store.filled.reached(time)
    after = Chart(chart.store, lost, time, (token,), chain)
    actions = given if actions is None else actions
    return Advanced(reading, attention, actions, call.all_trusted, call.flags, after)


class _Advance(Operation):
    """Steps of charts, which are written in place.

    The log weights are given, [B, n, A] or [B, A], or as hidden states [B, H] with a layer.
    """

    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context, token: Tensor, given: Tensor, weight: Tensor | None, bias: Tensor | None, call: _Call
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        chain, start, dtype, at = call.chain, call.start, call.chain.dtype, call.chain.store.layout
        actions = given.contiguous()
        if weight is not None and bias is not None:
            actions = torch.addmm(bias, given, weight.t())
        kinds, steps = at.kinds, actions.shape[1] if actions.dim() == 3 else 1
        leading = (chain.batch, *actions.shape[1:-1])
        reading, attention, attention_at = empty(dtype, *leading, kinds), token, 0
        if call.attend:
            span = (*leading, kinds, start + steps + 1)
            attention = zeros(dtype, *span)
            attention_at = address(attention, dtype, *span)
        table, lost = chain.reach(start, steps), address(call.lost, torch.float64, chain.batch, kinds + 1)
        given_at = address(actions, dtype, *leading, at.actions)
        where = given_at, address(reading, dtype, *leading, kinds), attention_at, call.flags_at

        def work(lo: int, hi: int) -> None:
            trusted = step_loops.forward(chain.kind, table, lost, lo, hi, start, steps, *where, call.limit)
            if not trusted:
                call.all_trusted = False

        share(chain.batch, work, at.cost(start, steps) * chain.batch)
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
    def backward(ctx: Context, *received: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        actions, reading, attention, *layer = ctx.saved_tensors
        call: _Call = ctx.call
        chain, start, steps = call.chain, call.start, ctx.steps
        shown = None if received[0] is None else received[0].contiguous()
        weights = None if received[1] is None else received[1].contiguous()
        current = chain.current()
        if not current.at:
            current.begin_at(start + steps)
        current.reach_back_to(start + steps)
        dtype, at, table = chain.dtype, chain.store.layout, chain.reach(start, steps)
        kinds, leading = at.kinds, (chain.batch, *actions.shape[1:-1])
        grads, given, span = (
            empty(dtype, *actions.shape),
            (*leading, at.actions),
            (*leading, kinds, start + steps + 1),
        )
        where = (
            address(actions, dtype, *given), address(reading, dtype, *leading, kinds),
            address(attention, dtype, *span) if call.attend else 0,
            optional(shown, dtype, *leading, kinds), optional(weights, dtype, *span),
            address(grads, dtype, *given), call.flags_at,
        )  # fmt: skip

        def work(lo: int, hi: int) -> None:
            step_loops.backward(chain.kind, table, current.at, lo, hi, start, steps, *where)

        share(chain.batch, work, 2 * at.cost(start, steps) * chain.batch)
        if start == chain.begin and not chain.older:
            chain.forget()
        if not layer:
            return None, grads, None, None, None
        if received[2] is not None:
            grads += received[2]
        hidden, weight = layer
        return None, grads @ weight, grads.t() @ hidden, grads.sum(0), None
