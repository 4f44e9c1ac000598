"""A whole sequence of an LSTM that drives a stratification stack, as one torch operation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.fused import stratification_loops as compiled
from ndstack.ops.lstm.weights import LSTMWeights, weight_gradients
from ndstack.ops.runtime.addresses import array, array_or_zeros, empty, written, zeros
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    in_own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.in_graph import Kept, Shape
from ndstack.ops.runtime.threads import share


def run(
    inputs: Tensor,
    weights: LSTMWeights,
    hidden: Tensor,
    memory: Tensor,
    reading: Tensor,
    elements: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run all steps, on CPU tensors.

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
    all_hidden, readings, last, strengths, vectors = _Run.apply(
        inputs, *weights, hidden, memory, reading, elements[:, :, 0], elements[:, :, 1:]
    )
    return all_hidden, readings, last, torch.cat([strengths[:, :, None], vectors], dim=2)


class _Run(Operation):
    @staticmethod
    def forward(ctx: Context, inputs: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        own, (hidden, memory, reading, strengths, given) = LSTMWeights(*rest[:4]), rest[4:]
        (batch, start, m), n, units, dtype = given.shape, inputs.shape[1], hidden.shape[1], inputs.dtype
        sizes = (m + units, 4 * units, units, units, m, 2)
        before, gates, memories, all_hidden, readings, weights = (
            empty(dtype, batch, n, size) for size in sizes
        )
        vectors, befores = zeros(dtype, batch, start + n, m), empty(dtype, batch, n)
        vectors[:, :start] = given
        final, kept = empty(dtype, batch, start + n), empty(dtype, batch, start + n)
        parents = empty(torch.int32, batch, start + n)
        outputs = (
            before, gates, memories, all_hidden, readings, weights, vectors, final, parents, kept, befores,
        )  # fmt: skip
        layers = own.arrays(dtype, units, m, 2 + m)
        share(
            batch, compiled.forward, batch * n * inputs.shape[2] * 2 * units,
            array(inputs, dtype, batch, n, 4 * units), *layers,
            array(hidden, dtype, batch, units), array(memory, dtype, batch, units),
            array(reading, dtype, batch, m), array(strengths, dtype, batch, start),
            *(written(tensor, tensor.dtype, *tensor.shape) for tensor in outputs),
        )  # fmt: skip
        ctx.save_for_backward(
            *own[:3], memory, before,
            gates, memories, all_hidden, weights, vectors, parents, kept, befores,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.layers = layers[:2]
        return all_hidden, readings, memories[:, -1].clone(), final, vectors

    @staticmethod
    @in_own_precision
    def backward(
        ctx: Context,
        grad_hidden: Tensor | None,
        grad_readings: Tensor | None = None,
        grad_memory: Tensor | None = None,
        grad_final: Tensor | None = None,
        grad_given_back: Tensor | None = None,
    ) -> Gradients:
        refuse_second_derivatives()
        (
            memory, before, gates, memories, hidden, weights, vectors, parents, kept, befores,
        ) = ctx.saved_tensors[3:]  # fmt: skip
        (batch, total, m), n, units, dtype = vectors.shape, weights.shape[1], hidden.shape[2], gates.dtype
        start, each = total - n, (dtype, batch, n)
        grad_gates, grad_controls = empty(*each, 4 * units), empty(*each, 2 + m)
        begun = ((batch, units), (batch, units), (batch, m), (batch, start))
        grads = [empty(dtype, *shape) for shape in begun]
        grad_vectors = zeros(dtype, batch, total, m)
        if grad_given_back is not None:
            grad_vectors += grad_given_back
        share(
            batch, compiled.backward, batch * 2 * n * gates.shape[2] * 2 * units,
            *ctx.layers,  # of weights that are saved, so nobody has changed them
            array(memory, dtype, batch, units), array(gates, *each, 4 * units),
            array(memories, *each, units), array(weights, *each, 2), array(vectors, dtype, batch, total, m),
            array(parents, torch.int32, batch, total), array(kept, dtype, batch, total),
            array(befores, *each), array_or_zeros(grad_hidden, *each, units),
            array_or_zeros(grad_readings, *each, m), array_or_zeros(grad_memory, dtype, batch, units),
            array_or_zeros(grad_final, dtype, batch, total),
            written(grad_gates, *each, 4 * units), written(grad_controls, *each, 2 + m),
            *(written(grad, dtype, *shape) for grad, shape in zip(grads, begun, strict=True)),
            written(grad_vectors, dtype, batch, total, m),
        )  # fmt: skip
        grad_weights = weight_gradients(grad_gates, grad_controls, before, hidden)
        return grad_gates, *grad_weights, *grads, grad_vectors[:, :start]


class _FreshRun:
    """`run` from empty stacks; see `in_graph.Passes`."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (batch, n, gates), m = given[0].shape, given[1].shape[1]
        each = (batch, n)
        return [(*each, gates // 4), (*each, m), (batch, gates // 4), each, (*each, m)]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept, tuple[Tensor, ...]]:
        kept, batch, units, m = Kept(record), len(given[0]), given[2].shape[1], given[1].shape[1]
        shapes = ((batch, units), (batch, units), (batch, m), (batch, 0), (batch, 0, m))
        return kept, _Run.forward(kept, *given, *(given[0].new_zeros(shape) for shape in shapes))

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        assert isinstance(kept, Kept)
        return _Run.backward(kept, *grads)[:5]


passes = _FreshRun()
