"""A whole sequence of an LSTM that drives nondeterministic stacks, as one differentiable operation.

One call forward and one backward for an RNS-RNN or a VRNS-RNN of any size; see `cpu_lstm`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndstack.kernels import cpu_lstm
from ndstack.kernels.cpu_backward import Adjoint
from ndstack.kernels.cpu_engine import LIMITS, CpuChart, cost, zeros
from ndstack.kernels.cpu_lstm import Net, Trace
from ndstack.kernels.cpu_state import Memory, Place, chart_of
from ndstack.kernels.lstm import LSTMWeights, weight_gradients
from ndstack.kernels.rows import as_array, refuse_second_derivatives
from ndstack.kernels.threads import share
from ndstack.kernels.tracing import refuse_transforms


@dataclasses.dataclass(frozen=True, eq=False)
class Driven:
    """What a run of the controller and its stacks gives.

    Attributes:
        hidden: [B, n, H].
        readings: [B, n, R].
        last_cell: [B, H].
        actions: [B, n, A], log weights.
        vectors: [B, time + n + 1, m], on all positions of the charts; m may be 0.
        ok: [B], which sequences can be trusted.
        memory, place: the charts afterwards.
    """

    hidden: Tensor
    readings: Tensor
    last_cell: Tensor
    actions: Tensor
    vectors: Tensor
    ok: Tensor
    memory: Memory
    place: Place


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    first: tuple[Tensor, Tensor, Tensor],
    vectors: Tensor,
    memory: Memory,
    place: Place,
    *,
    normalized: bool,
    by_state: bool,
    limit: float | None = None,
) -> Driven:
    """All steps; everything is of the charts' dtype.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates, biases included; n > 0.
        weights: of the controller.
        first: h_0 and c_0 [B, H], r_0 [B, R].
        vectors: [B, time + 1, m], on the positions of the charts so far; m may be 0.
        memory, place: charts with room for the steps, see `cpu_state`.
        normalized: whether weights are normalised (eq. 4.4).
        by_state: whether readings tell the state.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.
    """
    refuse_transforms()
    lost = memory[5].clone()
    memory = (*memory[:5], lost, *memory[6:])
    bound = LIMITS[inputs.dtype] if limit is None else limit
    sure: list[Tensor] = []
    call = _Call(chart_of(memory, place), place.time, normalized, by_state, bound, sure)
    go: Any = _Run.apply
    hidden, readings, last, actions, vectors, *links = go(
        call, inputs, *weights, *first, vectors, *memory[6:]
    )
    place.filled.time = place.time + inputs.shape[1]
    after = dataclasses.replace(place, time=place.filled.time)
    memory = (*memory[:6], *links)
    return Driven(hidden, readings, last, actions, vectors, sure[0], memory, after)


@dataclasses.dataclass(frozen=True, eq=False)
class _Call:
    chart: CpuChart
    start: int
    normalized: bool
    by_state: bool
    limit: float
    sure: list[Tensor]


class _Trace(NamedTuple):
    """`Trace` as tensors."""

    gates: Tensor
    cells: Tensor
    hidden: Tensor
    readings: Tensor
    actions: Tensor
    vectors: Tensor


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, inputs: Tensor, *tensors: Tensor) -> Any:
        weights, first, vectors = LSTMWeights(*tensors[:4]), tensors[4:7], tensors[7]
        batch, steps, units = inputs.shape[0], inputs.shape[1], inputs.shape[2] // 4
        places, start = call.chart.places, call.start
        new = inputs.new_zeros
        m = vectors.shape[2]
        trace = _Trace(
            new(batch, steps, 4 * units),
            new(batch, steps, units),
            new(batch, steps, units),
            new(batch, steps, first[2].shape[1]),
            new(batch, steps, weights.control.shape[0] - m),
            torch.cat([vectors, new(batch, steps, m)], 1),
        )
        net = Net(*map(as_array, (*(weight.t() for weight in weights[:3]), weights.control_bias)))
        shape, past, given = call.chart.shape(), call.chart.past(), as_array(inputs)
        begin, arrays = tuple(map(as_array, first)), Trace(*map(as_array, trace))
        ok = np.zeros(batch, np.bool_)
        choice = call.normalized, call.by_state

        def work(lo: int, hi: int) -> None:
            cpu_lstm.forward(shape, past, lo, hi, start, net, given, begin, *choice, arrays, ok, call.limit)

        share(batch, work, cost(places, start, steps) * batch)
        call.sure.append(torch.from_numpy(ok))
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*weights[:3], *first, *trace)
        last = trace.cells[:, -1].clone()
        links = tuple(link.view_as(link) for link in tensors[8:])
        return trace.hidden, trace.readings, last, trace.actions, trace.vectors, *links

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        refuse_second_derivatives()
        call: _Call = ctx.call
        saved = ctx.saved_tensors
        weights, first, trace = saved[:3], saved[3:6], _Trace(*saved[6:])
        like = (trace.hidden, trace.readings, first[1], trace.actions, trace.vectors)
        given = [
            torch.zeros_like(tensor) if grad is None else grad
            for tensor, grad in zip(like, received[:5], strict=True)
        ]
        places, start = call.chart.places, call.start
        batch, steps = trace.gates.shape[:2]
        dtype = trace.gates.dtype
        links = received[5:]
        passed = None
        if links[0] is not None or links[1] is not None:
            passed = [
                zeros(batch, size, dtype) if link is None else link.contiguous()
                for link, size in zip(links, (places.size, places.ends), strict=True)
            ]
        gates, controls = (
            torch.zeros_like(trace.gates),
            trace.gates.new_zeros(batch, steps, weights[2].shape[0]),
        )
        out = (gates, controls, *map(torch.zeros_like, first), torch.zeros_like(trace.vectors))
        shape, past = call.chart.shape(), call.chart.past()
        bias = trace.gates.new_zeros(weights[2].shape[0])
        net = Net(*map(as_array, (*(weight.t() for weight in weights), bias)))
        arrays = [tuple(map(as_array, group)) for group in (first, given, out)]
        seen, choice = Trace(*map(as_array, trace)), (call.normalized, call.by_state)

        def work(lo: int, hi: int) -> None:
            sums = passed or (zeros(1, places.size, dtype), zeros(1, places.ends, dtype))
            cpu_lstm.backward(
                shape, past, Adjoint(*map(as_array, sums)), passed is not None, lo, hi, start, net,
                arrays[0], *choice, seen, arrays[1], arrays[2],
            )  # fmt: skip

        share(batch, work, 2 * cost(places, start, steps) * batch)
        by_weights = weight_gradients(gates, controls, (first[2], trace.readings), (first[0], trace.hidden))
        hidden, cell, reading, vectors = out[2:]
        before = vectors[:, : start + 1]
        return None, gates, *by_weights, hidden, cell, reading, before, None, None
