"""A whole sequence of an LSTM that drives nondeterministic stacks, as one differentiable operation.

There is one call forward and one backward for an RNS-RNN or a VRNS-RNN of any size; see
`nondeterministic_loops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.fused import nondeterministic_loops as loops
from ndstack.ops.fused.nondeterministic_loops import Net, Trace
from ndstack.ops.lstm.weights import LSTMWeights, weight_gradients
from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.runtime import beside
from ndstack.ops.runtime.addresses import Array, array, empty, fresh, written, zeros
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    in_own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.threads import share
from ndstack.ops.runtime.torch_internals import plain_apply
from ndstack.ops.runtime.tracing import refuse_transforms


class Run(NamedTuple):
    """What a run of the controller and its stacks gives.

    Attributes:
        hidden: [B, n, H].
        readings: [B, n, R].
        last_cell: [B, H].
        actions: [B, n, A], log weights.
        vectors: [B, time + n + 1, m], on all positions of the charts; m may be 0.
        trusted: [B], which sequences can be trusted; None if all.
        chart: the charts afterwards; not to be used if torch does not differentiate the run.
    """

    hidden: Tensor
    readings: Tensor
    last_cell: Tensor
    actions: Tensor
    vectors: Tensor
    trusted: Tensor | None
    chart: Chart


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    first: tuple[Tensor, Tensor, Tensor],
    vectors: Tensor | None,
    chart: Chart,
    *,
    normalized: bool,
    by_state: bool,
    limit: float | None = None,
    kept: Context | None = None,
) -> Run:
    """All steps; everything is of the charts' dtype.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates, biases included; n > 0.
        weights: of the controller.
        first: h_0 and c_0 [B, H], r_0 [B, R].
        vectors: [B, j, m], the last of which are on the positions of the charts so far; None without vectors.
        chart: the charts so far.
        normalized: whether weights are normalised (eq. 4.4).
        by_state: whether readings tell the state.
        limit: how much mass may be lost, as a logarithm; the guard's own limit if None.
        kept: what `gradients` is to be given, if torch is not to differentiate this run.
    """
    refuse_transforms()
    chart = chart.settle().grow(inputs.shape[1])
    store = chart.store.contiguous()
    vectors = (
        inputs.new_zeros(store.batch, chart.time + 1, 0)
        if vectors is None
        else vectors[:, -(chart.time + 1) :]
    )
    chart = Chart(store, chart.lost.clone(memory_format=torch.contiguous_format), chart.time, chart.links)
    call = _Call(chart, normalized, by_state, LIMITS[inputs.dtype] if limit is None else limit)
    given = (inputs, *weights, *first, vectors)
    found = _apply(call, *given, *chart.links) if kept is None else _Run.forward(kept, call, *given)
    hidden, readings, cell, actions, vectors, *links = found
    time = chart.time + inputs.shape[1]
    store.filled.reached(time)
    after = Chart(store, chart.lost, time, tuple(links))
    return Run(hidden, readings, cell, actions, vectors, call.trusted, after)


def gradients(kept: Context, *grads: Tensor | None) -> Gradients:
    """Return the derivatives with respect to inputs, weights, r_0 and the vectors.

    Args:
        kept: what was given to `run`.
        grads: with respect to hidden states, readings, last cells, actions and vectors.
    """
    _, inputs, *weights, _, _, reading, vectors, _, _ = _Run.backward(kept, *grads, None, None)
    return inputs, *weights, reading, vectors


@dataclasses.dataclass(eq=False)
class _Call:
    """One run: its charts, how it reads them, and, afterwards, which sequences can be trusted."""

    chart: Chart
    normalized: bool
    by_state: bool
    limit: float
    trusted: Tensor | None = None


class _Sizes(NamedTuple):
    """What the arrays that a run is given have to measure, for its charts."""

    batch: int
    start: int
    steps: int
    units: int
    actions: int
    vector: int
    reading: int

    @classmethod
    def of(cls, call: _Call, units: int, vector: int, steps: int) -> Self:
        """Of a run from a time of its charts on."""
        at = call.chart.store.layout
        reading = (at.states if call.by_state else 1) * at.symbols * (vector or 1)
        return cls(call.chart.store.batch, call.chart.time, steps, units, at.actions, vector, reading)

    def first(self) -> tuple[tuple[int, ...], ...]:
        """Of h_0, c_0 and r_0."""
        return (self.batch, self.units), (self.batch, self.units), (self.batch, self.reading)

    def trace(self) -> tuple[tuple[int, ...], ...]:
        """Of `Trace`."""
        batch, steps, units = self.batch, self.steps, self.units
        return (
            (batch, steps, self.reading + units),
            (batch, steps, 4 * units),
            (batch, steps, units),
            (batch, steps, units),
            (batch, steps, self.reading),
            (batch, steps, self.actions),
            (batch, self.start + steps + 1, self.vector),
        )


class _Run(Operation):
    @staticmethod
    def forward(ctx: Context, call: _Call, inputs: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        weights, first, vectors = LSTMWeights(*tensors[:4]), tensors[4:7], tensors[7]
        at, start, steps = call.chart.store.layout, call.chart.time, inputs.shape[1]
        sizes = _Sizes.of(call, first[0].shape[1], vectors.shape[2], steps)
        dtype, batch = call.chart.dtype, sizes.batch
        trace, arrays = fresh(dtype, sizes.trace())
        _, _, _, hidden, readings, actions, all_vectors = trace
        if sizes.vector:
            all_vectors[:, : start + 1] = vectors
        net = Net(*weights.arrays(dtype, sizes.units, sizes.reading, sizes.actions + sizes.vector))
        shape, past = call.chart.arrays(start + steps)
        given = array(inputs, dtype, batch, steps, 4 * sizes.units)
        begin = _arrays(dtype, first, sizes.first())
        ok, seen = np.zeros(batch, np.bool_), Trace(*arrays)
        if any(ctx.needs_input_grad):
            name = "float32" if dtype is torch.float32 else "float64"
            beside.expect_backward(loops.__name__, name)
        share(
            batch, loops.forward, at.cost(start, steps) * batch, shape, past, start, net, given, begin,
            call.normalized, call.by_state, seen, ok, call.limit,
        )  # fmt: skip
        call.trusted = torch.from_numpy(ok) if 0 in ok.tobytes() else None
        ctx.call, ctx.sizes, ctx.arrays = call, sizes, (shape, past, net, begin, seen)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*weights[:3], *first, *trace)
        links = tuple(link.view_as(link) for link in tensors[8:])
        return hidden, readings, torch.from_numpy(seen.cells[:, -1].copy()), actions, all_vectors, *links

    @staticmethod
    @in_own_precision
    def backward(ctx: Context, *received: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        call, sizes = ctx.call, ctx.sizes
        before, gates, _, hidden, *_ = ctx.saved_tensors[6:]
        at, start, dtype = call.chart.store.layout, sizes.start, gates.dtype
        batch, steps = sizes.batch, sizes.steps
        links, older = received[5:], ctx.needs_input_grad[-1]
        rooms, passed = (at.size, at.ends), None
        if older or links[0] is not None or links[1] is not None:
            passed = [
                zeros(dtype, batch, size)
                if link is None
                else link.clone(memory_format=torch.contiguous_format)
                for link, size in zip(links, rooms, strict=True)
            ]
        traced, begun = sizes.trace(), sizes.first()
        asked = [traced[3], traced[4], begun[1], traced[5], traced[6]]
        for place in (1, 3):
            if received[place] is None:
                asked[place] = (batch, 0, asked[place][2])
        given = [
            zeros(dtype, *shape) if grad is None else grad
            for shape, grad in zip(asked, received[:5], strict=True)
        ]
        shapes = (traced[1], (batch, steps, sizes.actions + sizes.vector), *begun, traced[6])
        out, into = fresh(dtype, shapes)
        shape, past, net, begin, seen = ctx.arrays  # of memory that is saved, so nobody has changed it
        arrays, choice = _arrays(dtype, given, asked), (call.normalized, call.by_state)
        sums = [empty(dtype, batch, size) for size in rooms] if passed is None else passed
        adjoint = Adjoint(*(written(one, dtype, batch, n) for one, n in zip(sums, rooms, strict=True)))
        beside.wait_for_backward(loops.__name__)
        share(
            batch, loops.backward, 2 * at.cost(start, steps) * batch, shape, past, adjoint,
            passed is not None, older, start, net, begin, *choice, seen, arrays, tuple(into),
        )  # fmt: skip
        grad_gates, grad_controls, *grad_first, grad_vectors = out
        by_weights = weight_gradients(grad_gates, grad_controls, before, hidden)
        by_links = passed if older and passed is not None else (None, None)
        return None, grad_gates, *by_weights, *grad_first, grad_vectors[:, : start + 1], *by_links


_apply = plain_apply(_Run)


def _arrays(
    dtype: torch.dtype, tensors: Iterable[Tensor], shapes: Iterable[tuple[int, ...]]
) -> tuple[Array, ...]:
    return tuple(array(tensor, dtype, *shape) for tensor, shape in zip(tensors, shapes, strict=True))
