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
from ndstack.ops.nondeterministic.cpu.steps import StepCall, begin_steps
from ndstack.ops.runtime.addresses import (
    address,
    empty_with_address,
    known_addresses,
    of_numbers,
    optional,
    rows,
)
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.torch_internals import plain_apply


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
    by_reading, by_hidden, control, bias = weights
    hidden, cell = lstm_state
    wanted = (
        by_reading.requires_grad or by_hidden.requires_grad or control.requires_grad or bias.requires_grad
    )
    linked = gates.requires_grad or reading.requires_grad or hidden.requires_grad or cell.requires_grad
    token, call = begin_steps(chart, 1, (wanted or linked) and torch.is_grad_enabled())
    layers = (
        contiguous_rows(by_reading), contiguous_rows(by_hidden), contiguous_rows(control), bias.contiguous()
    )  # fmt: skip
    again, places, strides = call.chain.drive(call.start, layers)
    given = (
        call, _Net(layers, places, strides, again, wanted), None if token is reading else token,
        gates, reading, hidden, cell, *(() if again else weights),
    )  # fmt: skip
    try:
        hidden, cell, shown, actions = _apply(*given)
    except RuntimeError:  # a tensor that a transform of torch.func has left behind
        hidden, cell, shown, actions = _Step.apply(*given)
    return Step(hidden, cell, shown, actions, call.all_trusted, call.chart_after(shown))


class _Net(NamedTuple):
    """The weights of a controller at a step.

    Attributes:
        layers: the three matrices and the bias.
        places, strides: where they are (see `Chain.drive`).
        again: whether the step before had them, too. Then it passes on what this step says about them.
        wanted: whether derivatives with respect to them are wanted.
    """

    layers: tuple[Tensor, Tensor, Tensor, Tensor]
    places: list[int]
    strides: tuple[int, int, int]
    again: bool
    wanted: bool


class _Step(Operation):
    @staticmethod
    def forward(
        ctx: Context,
        call: StepCall,
        net: _Net,
        _token: Tensor | None,
        added: Tensor,
        reading: Tensor,
        hidden: Tensor,
        memory: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        chain = call.chain
        dtype, batch, units, at = chain.dtype, chain.batch, hidden.shape[1], chain.store.layout
        kinds, controls = at.kinds, at.actions
        reading, hidden, memory = reading.contiguous(), hidden.contiguous(), memory.contiguous()
        ctx.block, ctx.gates_at = chain.gates(units)
        new_memory, new_memory_at = empty_with_address(dtype, batch, units)
        new_hidden, new_hidden_at = empty_with_address(dtype, batch, units)
        shown, shown_at = empty_with_address(dtype, batch, kinds)
        actions, actions_at = empty_with_address(dtype, batch, controls)
        added = contiguous_rows(added)
        added_at, stride = rows(added, dtype, batch, 4 * units)
        by_reading_at, by_hidden_at, control_at, bias_at = net.places
        _kept, table_at = of_numbers(
            ControllerTable(
                units, kinds, controls, stride, *net.strides, address(reading, dtype, batch, kinds),
                address(hidden, dtype, batch, units), address(memory, dtype, batch, units),
                by_reading_at, by_hidden_at, control_at, new_memory_at, ctx.gates_at,
                bias_at, added_at, new_hidden_at,
            )
        )  # fmt: skip
        call.forward(table_at, actions_at, shown_at)
        ctx.call, ctx.net = call, net
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(reading, hidden, memory, new_memory, shown, actions, new_hidden, *weights)
        return new_hidden, new_memory, shown, actions

    @staticmethod
    def backward(ctx: Context, *received: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        call: StepCall = ctx.call
        net: _Net = ctx.net
        reading, hidden, memory, new_memory, shown, actions, new_hidden, *_ = ctx.saved_tensors
        chain, units = call.chain, hidden.shape[1]
        dtype, batch, at = chain.dtype, chain.batch, chain.store.layout
        kinds, controls = at.kinds, at.actions
        by_hidden, by_memory, by_shown, by_actions = [
            None if grad is None else grad.contiguous() for grad in received
        ]
        current = call.begin_backward()
        grads = current.room_for(call.start + 1, 4 * units, controls, kinds, units, units)
        grad_gates, grad_controls, grad_reading, grad_hidden, grad_memory = grads
        grad_gates_at, grad_controls_at, grad_reading_at, grad_hidden_at, grad_memory_at = known_addresses(
            grads
        )
        shown_at, actions_at = address(shown, dtype, batch, kinds), address(actions, dtype, batch, controls)
        by_reading_at, by_hidden_at, control_at, bias_at = known_addresses(net.layers)
        _kept, table_at = of_numbers(
            ControllerTable(
                units, kinds, controls, 0, *net.strides, address(reading, dtype, batch, kinds),
                address(hidden, dtype, batch, units), address(memory, dtype, batch, units),
                by_reading_at, by_hidden_at, control_at,
                address(new_memory, dtype, batch, units), ctx.gates_at, bias_at, 0, 0,
                optional(by_hidden, dtype, batch, units), optional(by_memory, dtype, batch, units),
                optional(by_actions, dtype, batch, controls),
                grad_gates_at, grad_reading_at, grad_hidden_at, grad_memory_at,
            )
        )  # fmt: skip
        grad_shown_at = optional(by_shown, dtype, batch, kinds)
        call.backward(current, table_at, actions_at, shown_at, 0, grad_shown_at, 0, grad_controls_at)
        found = None, None, None, grad_gates, grad_reading, grad_hidden, grad_memory
        if net.wanted:
            current.about_weights.append((grad_gates, grad_controls, reading, hidden, new_hidden))
        if net.again:
            return found
        if not net.wanted:
            return *found, None, None, None, None
        with own_precision():
            by_weights = weight_gradients_of_steps(current.about_weights)
        current.about_weights.clear()
        return *found, *by_weights


_apply = plain_apply(_Step)
