"""An LSTM with its action layer and its nondeterministic stack, whole sequences, by Triton kernels.

For stacks of symbols whose weights are not normalised, with the bottom of chapter 8 and without a window; all
others take turns with their controller, step by step.
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
from ndstack.ops.nondeterministic.portable.scan import automaton_of
from ndstack.ops.nondeterministic.portable.store import Automaton, Store
from ndstack.ops.nondeterministic.portable.weights import inward
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.nondeterministic.store import Filled
from ndstack.ops.nondeterministic.triton import fused, fused_back, lost_mass
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.triton_launch import power_of_two


class FusedRun(NamedTuple):
    """h and r of all steps, c_n, the log weights [B, n, A], and the charts afterwards."""

    hidden: Tensor
    readings: Tensor
    cell: Tensor
    actions: Tensor
    chart: DeviceChart


def run(inputs: Tensor, weights: Sequence[Tensor], first: Sequence[Tensor], setting: Setting) -> FusedRun:
    """Run whole sequences from fresh stacks.

    Args:
        inputs: [B, n, 4 H].
        weights: [4 H, K] of the reading, [4 H, H] of the hidden state, [A, H] and [A] of the action layer.
        first: h_0, c_0 [B, H] and r_0 [B, K].
    """
    told: list[DeviceChart] = []
    hidden, readings, cell, actions, *links = _Run.apply(
        inputs, *weights, *first, automaton_of(setting), told
    )
    chart = told[0]
    bad = ~(actions.detach().amax(-1) < torch.inf)
    bad = bad.long().cumsum(1) > 0
    after = dataclasses.replace(chart, links=(links[0], links[1]), invalid=bad[:, -1])
    later = torch.nn.functional.pad(bad[:, :-1], (1, 0))  # what a step reads it knows at the next one
    return FusedRun(mark(hidden, later), mark(readings, bad), cell, actions, after)


class _Run(Operation):
    @staticmethod
    def forward(ctx: Context, *given: object) -> tuple[Tensor, ...]:
        *tensors, at, told = given
        inputs, by_reading, by_hidden, by_control, bias, h, c, r = (
            tensor.detach().contiguous() for tensor in tensors if isinstance(tensor, Tensor)
        )
        assert isinstance(at, Automaton)
        assert isinstance(told, list)
        (batch, steps, _), units = inputs.shape, h.shape[1]
        store = Store.start(at, batch, steps + 1, inputs.dtype, inputs.device)
        trace = torch.empty_like(inputs)
        hidden, cells = (inputs.new_empty(batch, steps + 1, units) for _ in range(2))
        readings = inputs.new_empty(batch, steps + 1, at.kinds)
        hidden[:, 0], cells[:, 0], readings[:, 0] = h, c, r
        actions = inputs.new_empty(batch, steps, len(bias))
        uses = inputs.new_empty(batch, at.kinds, steps * at.states)
        fused.run_kernel[(batch,)](
            inputs, by_reading, by_hidden, by_control, bias, trace, hidden, cells, actions, readings,
            store.columns, store.log_alpha, store.log_total, uses, steps, units, **_sizes(at, units),
        )  # fmt: skip
        symbol_first = inward(actions, at.states, at.symbols)
        lost, trusted = lost_mass.bound(store, symbol_first, torch.zeros_like(store.log_alpha[:, 0]))
        flags = torch.zeros_like(trusted)
        told.append(DeviceChart(store, lost, trusted, flags, steps, no_links(store), Filled(steps)))
        ctx.store, ctx.trusted = store, trusted
        ctx.save_for_backward(by_reading, by_hidden, by_control, trace, hidden, cells, actions, readings)
        ctx.set_materialize_grads(False)
        return hidden[:, 1:], readings[:, 1:], cells[:, -1], actions, *no_links(store)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        by_reading, by_hidden, by_control, trace, hidden, cells, actions, readings = ctx.saved_tensors
        store, at = ctx.store, ctx.store.automaton
        batch, steps, units = trace.shape[0], trace.shape[1], hidden.shape[2]
        shapes = (hidden[:, 1:], readings[:, 1:], cells[:, -1], actions)
        by_h, by_r, by_c, by_actions = (
            torch.zeros_like(like, memory_format=torch.contiguous_format)
            if grad is None
            else grad.contiguous()
            for grad, like in zip(grads[:4], shapes, strict=True)
        )
        adjoint = Adjoint.zeros(store)
        if grads[4] is not None and grads[5] is not None:
            adjoint = Adjoint(grads[4], grads[5])
        by_gates, told = torch.zeros_like(trace), torch.zeros_like(actions)
        first = trace.new_zeros(batch, 2 * units + at.kinds)
        uses = trace.new_empty(batch, at.kinds, steps * at.states)
        back = trace.new_zeros(batch, at.states, (steps + 1) * at.kinds)
        fused_back.back_kernel[(batch,)](
            by_reading, by_hidden, by_control, trace, cells, actions, readings, store.columns,
            store.log_alpha, store.log_total, adjoint.columns, adjoint.alpha, uses, back, by_h, by_r, by_c,
            by_actions, by_gates, told, first, steps, units, **_sizes(at, units),
        )  # fmt: skip
        invalid = ~(actions.amax((1, 2)) < torch.inf)
        by_gates, told, first = (_settled(part, ctx.trusted, invalid) for part in (by_gates, told, first))
        rows, controls = by_gates.flatten(0, 1), told.flatten(0, 1)
        return (
            by_gates,
            rows.mT @ readings[:, :-1].flatten(0, 1),
            rows.mT @ hidden[:, :-1].flatten(0, 1),
            controls.mT @ hidden[:, 1:].flatten(0, 1),
            controls.sum(0),
            *torch.split(first, [units, units, at.kinds], -1),
            None,
            None,
        )


def _settled(grad: Tensor, trusted: Tensor, invalid: Tensor) -> Tensor:
    """A gradient, [B, ...]: nan for sequences that are invalid, 0 for those that will be computed again."""
    shape = (-1, *[1] * (grad.dim() - 1))
    grad = torch.where(trusted.view(shape), grad, 0.0)
    return grad.masked_fill(invalid.view(shape), torch.nan)


def _sizes(at: Automaton, units: int) -> dict[str, int]:
    padded = {"QP": power_of_two(at.states), "KP": power_of_two(at.kinds), "HP": power_of_two(units)}
    return {"Q": at.states, "S": at.symbols, **padded}
