"""One step of an LSTM that drives nondeterministic stacks without vectors, as one differentiable operation.

The compiled code is that of the steps of charts (`nondeterministic.cpu.step_loops`), with the controller
before the stack. Steps that follow each other are a chain (see `nondeterministic.cpu.chain`). If they have
the same weights, each leaves what it says about them to the step before it, and the first of them multiplies
matrices once, as a whole sequence does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.lstm.tables import ControllerTable
from ndstack.ops.lstm.weights import LSTMWeights, weight_gradients_of_steps
from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu.chain import Chain
from ndstack.ops.nondeterministic.cpu.steps import StepCall, begin_steps
from ndstack.ops.runtime.addresses import address, empty_with_address, of_numbers, optional, rows
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    in_own_precision,
    refuse_second_derivatives,
)


class Step(NamedTuple):
    """What a step gives.

    Attributes:
        hidden, cell, reading: [B, H], [B, H] and [B, R].
        actions: [B, A], log weights.
        all_trusted: whether no sequence is in need of a wider format; if one is, nothing else is to be used.
        chart: the charts afterwards.
    """

    hidden: Tensor
    cell: Tensor
    reading: Tensor
    actions: Tensor
    all_trusted: bool
    chart: Chart


def step(
    chart: Chart, gates: Tensor, weights: LSTMWeights, lstm_state: tuple[Tensor, Tensor], reading: Tensor
) -> Step:
    """Make one step; everything is of the charts' dtype.

    Args:
        chart: the charts so far, without a window.
        gates: [B, 4H], what the input contributes, biases included.
        weights: of the controller.
        lstm_state: h_{t-1} and c_{t-1}, [B, H] each.
        reading: [B, R], r_{t-1}.
    """
    given = (gates, reading, *lstm_state, *weights)
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    token, call = begin_steps(chart, 1, differentiable)
    call.passes_on = call.chain.drives_again(call.start, weights)
    hidden, cell, shown, actions, token = _Step.apply(call, token, *given)
    return Step(hidden, cell, shown, actions, call.all_trusted, call.chart_after(token))


def _table(
    chain: Chain,
    added: tuple[int, int],
    state: tuple[Tensor, Tensor, Tensor],
    layers: tuple[Tensor, Tensor, Tensor],
    units: int,
    *rest: int,
) -> ControllerTable:
    """What compiled code is told.

    Args:
        added: address and stride of what the input contributes to the gates.
        state: reading, hidden state and memory before the step; contiguous.
        layers: the matrices of the controller, with contiguous rows.
        rest: the addresses that follow in the table.
    """
    dtype, batch, at = chain.dtype, chain.batch, chain.store.layout
    reading, hidden, memory = state
    sizes = (4 * units, at.kinds), (4 * units, units), (at.actions, units)
    places = [rows(layer, dtype, *size) for layer, size in zip(layers, sizes, strict=True)]
    return ControllerTable(
        units, at.kinds, at.actions, added[1], *[stride for _, stride in places], added[0],
        address(reading, dtype, batch, at.kinds), address(hidden, dtype, batch, units),
        address(memory, dtype, batch, units), *[place for place, _ in places], *rest,
    )  # fmt: skip


class _Step(Operation):
    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context,
        call: StepCall,
        token: Tensor,
        added: Tensor,
        reading: Tensor,
        hidden: Tensor,
        memory: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        chain = call.chain
        dtype, batch, units, at = chain.dtype, chain.batch, hidden.shape[1], chain.store.layout
        state = reading.contiguous(), hidden.contiguous(), memory.contiguous()
        by_reading, by_hidden, control, bias = weights
        layers = contiguous_rows(by_reading), contiguous_rows(by_hidden), contiguous_rows(control)
        bias = bias.contiguous()
        gates, gates_at = empty_with_address(dtype, batch, 4 * units)
        new_memory, new_memory_at = empty_with_address(dtype, batch, units)
        new_hidden, new_hidden_at = empty_with_address(dtype, batch, units)
        shown, shown_at = empty_with_address(dtype, batch, at.kinds)
        actions, actions_at = empty_with_address(dtype, batch, at.actions)
        _kept, table_at = of_numbers(
            _table(
                chain, rows(contiguous_rows(added), dtype, batch, 4 * units), state, layers, units,
                address(bias, dtype, at.actions), gates_at, new_memory_at, new_hidden_at,
            )
        )  # fmt: skip
        call.forward(table_at, actions_at, shown_at)
        ctx.call, ctx.gates = call, gates
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*state, *layers, new_memory, new_hidden, shown, actions)
        return new_hidden, new_memory, shown, actions, token.new_empty(0)

    @staticmethod
    @in_own_precision
    def backward(ctx: Context, *received: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        call: StepCall = ctx.call
        reading, hidden, memory, *layers, new_memory, new_hidden, shown, actions = ctx.saved_tensors
        chain, gates = call.chain, ctx.gates
        dtype, batch, units, at = chain.dtype, chain.batch, hidden.shape[1], chain.store.layout
        by_hidden, by_memory, by_shown, by_actions = [
            None if grad is None else grad.contiguous() for grad in received[:4]
        ]
        grad_gates, grad_gates_at = empty_with_address(dtype, batch, 4 * units)
        grad_controls, grad_controls_at = empty_with_address(dtype, batch, at.actions)
        grad_reading, grad_reading_at = empty_with_address(dtype, batch, at.kinds)
        grad_hidden, grad_hidden_at = empty_with_address(dtype, batch, units)
        grad_memory, grad_memory_at = empty_with_address(dtype, batch, units)
        _kept, table_at = of_numbers(
            _table(
                chain, (0, 0), (reading, hidden, memory), tuple(layers), units, 0,
                address(gates, dtype, batch, 4 * units), address(new_memory, dtype, batch, units), 0,
                optional(by_hidden, dtype, batch, units), optional(by_memory, dtype, batch, units),
                optional(by_actions, dtype, batch, at.actions),
                grad_gates_at, grad_reading_at, grad_hidden_at, grad_memory_at,
            )
        )  # fmt: skip
        current = call.backward(
            table_at, address(actions, dtype, batch, at.actions), address(shown, dtype, batch, at.kinds), 0,
            optional(by_shown, dtype, batch, at.kinds), 0, grad_controls_at,
        )  # fmt: skip
        grads = grad_gates, grad_reading, grad_hidden, grad_memory
        if not any(ctx.needs_input_grad[-4:]):
            return None, None, *grads, None, None, None, None
        current.about_weights.append((grad_gates, grad_controls, reading, hidden, new_hidden))
        if call.passes_on:
            return None, None, *grads, None, None, None, None
        by_weights = weight_gradients_of_steps(current.about_weights)
        current.about_weights.clear()
        return None, None, *grads, *by_weights
