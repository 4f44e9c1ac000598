"""A whole sequence of an LSTM that drives superposition stacks, as one torch operation."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.fused import superposition_loops as compiled
from ndstack.ops.lstm.weights import LSTMWeights, weight_gradients
from ndstack.ops.runtime.addresses import array, array_or_zeros, empty, written
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    in_own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.in_graph import Kept, Shape, least
from ndstack.ops.runtime.stack_step import NO_LIMIT
from ndstack.ops.runtime.threads import share


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    hidden: Tensor,
    memory: Tensor,
    reading: Tensor,
    cells: Tensor,
    depth: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run all steps, on CPU tensors.

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
    tensors = (inputs, *weights, hidden, memory, reading, cells)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    result: tuple[Tensor, Tensor, Tensor, Tensor] = _Run.apply(depth or NO_LIMIT, record, *tensors)
    return result


class _Run(Operation):
    @staticmethod
    def forward(
        ctx: Context, depth: int, record: bool, inputs: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own, (hidden, memory, reading, cells) = LSTMWeights(*rest[:4]), rest[4:]
        (batch, stacks, start, m), n, units, dtype = (
            cells.shape,
            inputs.shape[1],
            hidden.shape[1],
            inputs.dtype,
        )
        end, stride, size = min(start + n, depth), max(1, math.isqrt(n)), stacks * m
        each = (dtype, batch, n)
        before = empty(*each, size + units)
        gates, memories, all_hidden = empty(*each, 4 * units), empty(*each, units), empty(*each, units)
        readings, weights, vectors = empty(*each, size), empty(*each, stacks, 3), empty(*each, size)
        final = empty(dtype, batch, stacks, end * m)
        saved = empty(dtype, batch, -(-n // stride) if record else 0, stacks, end * m)
        outputs = (before, gates, memories, all_hidden, readings, weights, vectors, final, saved)
        layers = own.arrays(dtype, units, size, (3 + m) * stacks)
        share(
            batch, compiled.forward, batch * n * (inputs.shape[2] * 2 * units + end * size),
            array(inputs, *each, 4 * units), *layers,
            array(hidden, dtype, batch, units), array(memory, dtype, batch, units),
            array(reading, dtype, batch, size),
            array(cells, dtype, batch, stacks, start, m).reshape(batch, stacks, start * m), depth, stride,
            *(written(tensor, dtype, *tensor.shape) for tensor in outputs),
        )  # fmt: skip
        ctx.save_for_backward(
            *own[:3], memory, before, gates, memories, all_hidden, weights, vectors, saved,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.settings, ctx.end, ctx.layers = (start, depth, stride), end, layers[:2]
        return all_hidden, readings, memories[:, -1].clone(), final.view(batch, stacks, end, m)

    @staticmethod
    @in_own_precision
    def backward(
        ctx: Context,
        grad_hidden: Tensor | None,
        grad_readings: Tensor | None = None,
        grad_memory: Tensor | None = None,
        grad_final: Tensor | None = None,
    ) -> Gradients:
        refuse_second_derivatives()
        memory, before, gates, memories, hidden, weights, vectors, saved = ctx.saved_tensors[3:]
        (batch, n, stacks, _), start, dtype = weights.shape, ctx.settings[0], gates.dtype
        units, size, end, each = hidden.shape[2], vectors.shape[2], ctx.end, (dtype, batch, n)
        m = size // stacks
        grad_gates, grad_controls = empty(*each, 4 * units), empty(*each, (3 + m) * stacks)
        begun = ((batch, units), (batch, units), (batch, size), (batch, stacks, start * m))
        grads = [empty(dtype, *shape) for shape in begun]
        share(
            batch, compiled.backward, batch * 2 * n * (gates.shape[2] * 2 * units + saved.shape[3]),
            *ctx.layers,  # of weights that are saved, so nobody has changed them
            array(memory, dtype, batch, units), *ctx.settings,
            array(gates, *each, 4 * units), array(memories, *each, units),
            array(weights, *each, stacks, 3), array(vectors, *each, size),
            array(saved, dtype, *saved.shape), array_or_zeros(grad_hidden, *each, units),
            array_or_zeros(grad_readings, *each, size), array_or_zeros(grad_memory, dtype, batch, units),
            array_or_zeros(grad_final, dtype, batch, stacks, end, m).reshape(batch, stacks, end * m),
            written(grad_gates, *each, 4 * units), written(grad_controls, *each, (3 + m) * stacks),
            *(written(grad, dtype, *shape) for grad, shape in zip(grads, begun, strict=True)),
        )  # fmt: skip
        grad_cells = grads.pop().view(batch, stacks, start, m)
        grad_weights = weight_gradients(grad_gates, grad_controls, before, hidden)
        return None, None, grad_gates, *grad_weights, *grads, grad_cells


class _FreshRun:
    """`run` from empty stacks; see `in_graph.Passes`."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (stacks, depth), (batch, n, gates) = numbers, given[0].shape
        size, units = given[1].shape[1], gates // 4
        return [
            (batch, n, units),
            (batch, n, size),
            (batch, units),
            (batch, stacks, n if depth == NO_LIMIT else least(n, depth), size // stacks),
        ]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept, tuple[Tensor, ...]]:
        (stacks, depth), inputs, kept = numbers, given[0], Kept(record)
        batch, units, size = inputs.shape[0], given[2].shape[1], given[1].shape[1]
        start = (
            inputs.new_zeros(batch, units),
            inputs.new_zeros(batch, units),
            inputs.new_zeros(batch, size),
            inputs.new_zeros(batch, stacks, 0, size // stacks),
        )
        return kept, _Run.forward(kept, depth, record, *given, *start)

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        assert isinstance(kept, Kept)
        return _Run.backward(kept, *grads)[2:7]


passes = _FreshRun()
