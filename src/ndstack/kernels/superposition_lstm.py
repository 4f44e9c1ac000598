"""A whole sequence of an LSTM that drives superposition stacks, as one torch operation."""

import math
from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import superposition_lstm_numba as compiled
from ndstack.kernels.lstm import LSTMWeights, weight_gradients
from ndstack.kernels.rows import as_array, check_state, over_rows, refuse_second_derivatives


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    hidden: Tensor,
    memory: Tensor,
    reading: Tensor,
    cells: Tensor,
    depth: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All steps, on CPU tensors.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates, biases included; n > 0.
        weights: of the controller.
        hidden: [B, H], at the start.
        memory: [B, H], at the start.
        reading: [B, G*m], at the start.
        cells: [B, G, h, m], at the start.
        depth: the greatest number of cells to keep, or None.

    Returns:
        The hidden states [B, n, H], the readings [B, n, G*m], the last memory [B, H] and the last
        cells [B, G, h', m].
    """
    check_state(weights.control_bias.shape[0] == (3 + cells.shape[3]) * cells.shape[1])
    tensors = (inputs, *weights, hidden, memory, reading, cells)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return _Run.apply(depth or 2**62, record, *tensors)  # type: ignore[no-any-return, no-untyped-call]


def _flat(cells: Tensor) -> Any:
    """[B, G, h, m] as an array [B, G, h*m]."""
    batch, stacks, height, m = cells.shape
    return as_array(cells).reshape(batch, stacks, height * m)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, depth: int, record: bool, inputs: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own, (hidden, memory, reading, cells) = LSTMWeights(*rest[:4]), rest[4:]
        (batch, n, _), units, (_, stacks, start, m) = inputs.shape, hidden.shape[1], cells.shape
        end, stride = min(start + n, depth), max(1, math.isqrt(n))
        new = inputs.new_empty
        gates, memories, all_hidden = new(inputs.shape), new(batch, n, units), new(batch, n, units)
        readings, vectors = new(batch, n, stacks * m), new(batch, n, stacks * m)
        weights, final = new(batch, n, stacks, 3), new(batch, stacks, end, m)
        saved = new(batch, -(-n // stride) if record else 0, stacks, end * m)
        over_rows(
            compiled.forward, batch, n * (inputs.shape[2] * 2 * units + end * stacks * m),
            as_array(inputs), *(as_array(weight.t()) for weight in own[:3]), as_array(own.control_bias),
            as_array(hidden), as_array(memory), as_array(reading), _flat(cells), depth, stride,
            as_array(gates), as_array(memories), as_array(all_hidden), as_array(readings),
            as_array(weights), as_array(vectors), _flat(final), as_array(saved),
        )  # fmt: skip
        ctx.save_for_backward(
            *own[:3], hidden, memory, reading, gates, memories, all_hidden, readings, weights, vectors, saved,
        )  # fmt: skip
        ctx.settings = (start, depth, stride)
        return all_hidden, readings, memories[:, -1].clone(), final

    @staticmethod
    def backward(
        ctx: Any,
        grad_hidden: Tensor,
        grad_readings: Tensor,
        grad_memory: Tensor,
        grad_final: Tensor,
    ) -> Any:
        refuse_second_derivatives()
        (
            reading_weight, hidden_weight, control_weight, hidden, memory, reading,
            gates, memories, all_hidden, readings, weights, vectors, saved,
        ) = ctx.saved_tensors  # fmt: skip
        (batch, n, stacks, _), start = weights.shape, ctx.settings[0]
        new = gates.new_empty
        grad_gates, grad_controls = new(gates.shape), new(batch, n, control_weight.shape[0])
        grads = new(hidden.shape), new(memory.shape), new(reading.shape)
        grad_cells = new(batch, stacks, start, vectors.shape[2] // stacks)
        cost = 2 * n * (gates.shape[2] * 2 * hidden.shape[1] + saved.shape[3])
        over_rows(
            compiled.backward, batch, cost,
            *(as_array(weight.t()) for weight in (reading_weight, hidden_weight, control_weight)),
            as_array(memory), *ctx.settings,
            as_array(gates), as_array(memories), as_array(weights), as_array(vectors),
            as_array(saved), as_array(grad_hidden), as_array(grad_readings),
            as_array(grad_memory), _flat(grad_final),
            as_array(grad_gates), as_array(grad_controls), *map(as_array, grads), _flat(grad_cells),
        )  # fmt: skip
        grad_weights = weight_gradients(grad_gates, grad_controls, (reading, readings), (hidden, all_hidden))
        return None, None, grad_gates, *grad_weights, *grads, grad_cells
