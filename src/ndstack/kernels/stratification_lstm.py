"""A whole sequence of an LSTM that drives a stratification stack, as one torch operation."""

from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import stratification_lstm_numba as compiled
from ndstack.kernels.lstm import LSTMWeights, weight_gradients
from ndstack.kernels.rows import as_array, check_state, over_rows, refuse_second_derivatives


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    hidden: Tensor,
    memory: Tensor,
    reading: Tensor,
    elements: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All steps, on CPU tensors.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates, biases included; n > 0.
        weights: of the controller.
        hidden: [B, H], at the start.
        memory: [B, H], at the start.
        reading: [B, m], at the start.
        elements: [B, k, 1+m], at the start: strengths and vectors.

    Returns:
        The hidden states [B, n, H], the readings [B, n, m], the last memory [B, H] and the last
        elements [B, k+n, 1+m].
    """
    check_state(weights.control_bias.shape[0] == 1 + elements.shape[2])
    all_hidden, readings, last, strengths, vectors = _Run.apply(  # type: ignore[no-untyped-call]
        inputs, *weights, hidden, memory, reading, elements[:, :, 0], elements[:, :, 1:]
    )
    return all_hidden, readings, last, torch.cat([strengths[:, :, None], vectors], dim=2)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        own, (hidden, memory, reading, strengths, given) = LSTMWeights(*rest[:4]), rest[4:]
        (batch, n, _), units, (_, start, m) = inputs.shape, hidden.shape[1], given.shape
        new = inputs.new_empty
        gates, memories, all_hidden = new(inputs.shape), new(batch, n, units), new(batch, n, units)
        readings, weights, befores = new(batch, n, m), new(batch, n, 2), new(batch, n)
        vectors = torch.cat([given, readings], dim=1)
        final, kept = new(batch, start + n), new(batch, start + n)
        parents = torch.empty(batch, start + n, dtype=torch.int32)
        outputs = (
            gates, memories, all_hidden, readings, weights, vectors, final, parents, kept, befores,
        )  # fmt: skip
        over_rows(
            compiled.forward, batch, n * inputs.shape[2] * 2 * units,
            as_array(inputs), *(as_array(weight.t()) for weight in own[:3]), as_array(own.control_bias),
            as_array(hidden), as_array(memory), as_array(reading), as_array(strengths),
            *map(as_array, outputs),
        )  # fmt: skip
        ctx.save_for_backward(
            *own[:3], hidden, memory, reading,
            gates, memories, all_hidden, readings, weights, vectors, parents, kept, befores,
        )  # fmt: skip
        return all_hidden, readings, memories[:, -1].clone(), final, vectors

    @staticmethod
    def backward(
        ctx: Any,
        grad_hidden: Tensor,
        grad_readings: Tensor,
        grad_memory: Tensor,
        grad_final: Tensor,
        grad_given_back: Tensor,
    ) -> Any:
        refuse_second_derivatives()
        (
            reading_weight, hidden_weight, control_weight, hidden, memory, reading,
            gates, memories, all_hidden, readings, weights, vectors, parents, kept, befores,
        ) = ctx.saved_tensors  # fmt: skip
        (batch, n, _), start = weights.shape, vectors.shape[1] - weights.shape[1]
        new = gates.new_empty
        grad_gates, grad_controls = new(gates.shape), new(batch, n, control_weight.shape[0])
        grads = new(hidden.shape), new(memory.shape), new(reading.shape), new(batch, start)
        grad_vectors = grad_given_back.clone(memory_format=torch.contiguous_format)
        over_rows(
            compiled.backward, batch, 2 * n * gates.shape[2] * 2 * hidden.shape[1],
            *(as_array(weight.t()) for weight in (reading_weight, hidden_weight, control_weight)),
            as_array(memory), as_array(gates), as_array(memories), as_array(weights),
            as_array(vectors), as_array(parents), as_array(kept), as_array(befores),
            as_array(grad_hidden), as_array(grad_readings), as_array(grad_memory),
            as_array(grad_final), as_array(grad_gates), as_array(grad_controls),
            *map(as_array, grads), as_array(grad_vectors),
        )  # fmt: skip
        grad_weights = weight_gradients(grad_gates, grad_controls, (reading, readings), (hidden, all_hidden))
        return grad_gates, *grad_weights, *grads, grad_vectors[:, :start]
