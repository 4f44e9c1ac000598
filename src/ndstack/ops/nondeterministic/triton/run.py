"""An LSTM with its action layer and its nondeterministic stack, whole sequences, by Triton kernels.

For every nondeterministic stack, from fresh charts or from charts that earlier steps have left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.invalid_sequences import mark
from ndstack.ops.nondeterministic.portable.backward import Adjoint
from ndstack.ops.nondeterministic.portable.chart import DeviceChart, no_links
from ndstack.ops.nondeterministic.portable.store import Store
from ndstack.ops.nondeterministic.portable.weights import inward
from ndstack.ops.nondeterministic.triton import fused, fused_back, lost_mass
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.triton_launch import power_of_two


class FusedRun(NamedTuple):
    """h and r of all steps, c_n, the log weights [B, n, A], the vectors so far, and the charts afterwards."""

    hidden: Tensor
    readings: Tensor
    cell: Tensor
    actions: Tensor
    vectors: Tensor
    chart: DeviceChart


def run(
    inputs: Tensor,
    weights: Sequence[Tensor],
    first: Sequence[Tensor],
    vectors: Tensor | None,
    chart: DeviceChart,
    *,
    normalized: bool,
    by_state: bool,
) -> FusedRun:
    """Run whole sequences; everything is of the charts' dtype.

    Args:
        inputs: [B, n, 4 H].
        weights: [4 H, R] of the reading, [4 H, H] of the hidden state, [A + m, H] and [A + m] of the action
            layer.
        first: h_0, c_0 [B, H] and r_0 [B, R].
        vectors: [B, time + 1, m], on all positions of the charts so far; None without vectors.
        chart: the charts so far.
        normalized: whether weights are normalised (eq. 4.4).
        by_state: whether readings tell the state.
    """
    shift, chart = chart.time, chart.grow(inputs.shape[1])
    shift -= chart.time  # what a window has forgotten
    call = _Call(chart, normalized, by_state)
    pushed = inputs.new_zeros(len(inputs), chart.time + 1, 0) if vectors is None else vectors[:, shift:]
    hidden, readings, cell, actions, pushed, *links = _Run.apply(
        call, inputs, *weights, *first, pushed, *chart.links
    )
    bad = ~(actions.detach().amax(-1) < torch.inf)
    bad |= ~pushed[:, chart.time + 1 :].detach().isfinite().all(-1)
    bad[:, 0] |= chart.invalid
    bad = bad.long().cumsum(1) > 0
    time = chart.time + inputs.shape[1]
    chart.filled.reached(time)
    after = dataclasses.replace(
        chart,
        lost=call.lost,
        trusted=chart.trusted & call.trusted,
        invalid=bad[:, -1],
        time=time,
        links=(links[0], links[1]),
    )
    later = torch.cat([chart.invalid[:, None], bad[:, :-1]], 1)  # what a step reads it knows at the next one
    return FusedRun(mark(hidden, later), mark(readings, bad), cell, actions, pushed, after)


@dataclasses.dataclass(eq=False)
class _Call:
    """One run: its charts, how they are read, and, afterwards, what underflow may have cost."""

    chart: DeviceChart
    normalized: bool
    by_state: bool
    lost: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))
    trusted: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))

    def sizes(self, units: int, vector: int) -> dict[str, int | bool]:
        """What the kernels are compiled for."""
        at = self.chart.store.automaton
        shown = at.kinds if self.by_state else at.symbols
        return {
            "Q": at.states,
            "S": at.symbols,
            "M": vector,
            "NORMALIZED": self.normalized,
            "BY_STATE": self.by_state,
            "FIX": at.bottom_fix,
            "WINDOW": at.window is not None,
            "QP": power_of_two(at.states),
            "KP": power_of_two(at.kinds),
            "MP": power_of_two(vector),
            "NP": power_of_two(shown),
            "HP": power_of_two(units),
        }


class _Run(Operation):
    @staticmethod
    def forward(ctx: Context, call: _Call, *given: Tensor) -> tuple[Tensor, ...]:
        inputs, by_reading, by_hidden, by_control, bias, h, c, r, before = (
            tensor.detach().contiguous() for tensor in given[:9]
        )
        store, start = call.chart.store, call.chart.time
        (batch, steps, _), units, at = inputs.shape, h.shape[1], store.automaton
        trace = torch.empty_like(inputs)
        hidden, cells = (inputs.new_empty(batch, steps + 1, units) for _ in range(2))
        readings = inputs.new_empty(batch, steps + 1, r.shape[1])
        hidden[:, 0], cells[:, 0], readings[:, 0] = h, c, r
        vectors = inputs.new_zeros(batch, store.times, before.shape[2])
        vectors[:, : start + 1] = before
        actions = inputs.new_empty(batch, steps, len(bias) - before.shape[2])
        mass = _masses(store)
        uses = inputs.new_empty(batch, at.kinds, store.times * at.states)
        fused.run_kernel[(batch,)](
            inputs, by_reading, by_hidden, by_control, bias, trace, hidden, cells, actions, vectors, readings,
            store.columns, store.log_alpha, store.log_total, mass, uses, start, steps, store.times, units,
            at.window or 0, **call.sizes(units, before.shape[2]),
        )  # fmt: skip
        symbol_first = inward(actions, at.states, at.symbols)
        call.lost, call.trusted = lost_mass.bound(store, start, symbol_first, call.chart.lost)
        ctx.call = call
        ctx.save_for_backward(
            by_reading, by_hidden, by_control, trace, hidden, cells, actions, vectors, readings, mass
        )
        ctx.set_materialize_grads(False)
        kept = vectors[:, : start + steps + 1]
        return hidden[:, 1:], readings[:, 1:], cells[:, -1], actions, kept, *no_links(store)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        by_reading, by_hidden, by_control, trace, hidden, cells, actions, vectors, readings, mass = (
            ctx.saved_tensors
        )
        call: _Call = ctx.call
        store, start, at = call.chart.store, call.chart.time, call.chart.store.automaton
        (batch, steps, _), units, vector = trace.shape, hidden.shape[2], vectors.shape[2]
        by_h, by_c, by_actions = (
            like.new_zeros(like.shape) if grad is None else grad.contiguous()
            for grad, like in zip(
                (grads[0], grads[2], grads[3]), (hidden[:, 1:], cells[:, -1], actions), strict=True
            )
        )
        by_readings = torch.zeros_like(readings)
        if grads[1] is not None:
            by_readings[:, 1:] = grads[1]
        by_place = trace.new_zeros(batch, store.times, at.kinds, vector)
        if grads[4] is not None:
            by_place[:, : start + steps + 1, 0] = grads[4]
        adjoint = Adjoint.zeros(store)
        if grads[5] is not None and grads[6] is not None:
            adjoint = Adjoint(grads[5].contiguous(), grads[6].contiguous())  # nobody else has these
        by_gates = torch.zeros_like(trace)
        told = trace.new_zeros(batch, steps, actions.shape[2] + vector)
        first = trace.new_zeros(batch, 2 * units)
        uses = trace.new_empty(batch, at.kinds, store.times * at.states)
        back = trace.new_zeros(batch, at.states, store.times * at.kinds)
        fused_back.back_kernel[(batch,)](
            by_reading, by_hidden, by_control, trace, cells, actions, vectors, readings, store.columns,
            store.log_alpha, store.log_total, mass, adjoint.columns, adjoint.alpha, by_place, uses, back,
            by_h, by_readings, by_c, by_actions, by_gates, told, first, start, steps, store.times, units,
            at.window or 0, **call.sizes(units, vector),
        )  # fmt: skip
        invalid = ~(actions.amax((1, 2)) < torch.inf) | ~vectors.isfinite().flatten(1).all(1)
        earlier = by_place[:, : start + 1].sum(2)
        results = (by_gates, told, first, by_readings[:, 0], earlier)
        by_gates, told, first, by_r, earlier = (_settled(part, call.trusted, invalid) for part in results)
        links: tuple[Tensor | None, ...] = (None, None)
        if ctx.needs_input_grad[10]:
            links = tuple(_settled(part, call.trusted, invalid) for part in adjoint)
        rows, controls = by_gates.flatten(0, 1), told.flatten(0, 1)
        return (
            None,
            by_gates,
            rows.mT @ readings[:, :-1].flatten(0, 1),
            rows.mT @ hidden[:, :-1].flatten(0, 1),
            controls.mT @ hidden[:, 1:].flatten(0, 1),
            controls.sum(0),
            first[:, :units],
            first[:, units:],
            by_r,
            earlier,
            *links,
        )


def _masses(store: Store) -> Tensor:
    """How much of every column stands on each position and those after it, [B, T, T, K]; with a window."""
    at, (batch, times, kinds) = store.automaton, store.log_alpha.shape
    if at.window is None:
        return store.columns.new_zeros(0)
    sums = store.columns.view(batch, at.symbols, times, at.states, times, kinds).sum(-1)
    sums = sums.permute(0, 2, 4, 1, 3).reshape(batch, times, times, kinds)
    return sums.flip(2).cumsum(2).flip(2).contiguous()


def _settled(grad: Tensor, trusted: Tensor, invalid: Tensor) -> Tensor:
    """A gradient, [B, ...]: nan for sequences that are invalid, 0 for those that will be computed again."""
    shape = (-1, *[1] * (grad.dim() - 1))
    grad = torch.where(trusted.view(shape), grad, 0.0)
    return grad.masked_fill(invalid.view(shape), torch.nan)
