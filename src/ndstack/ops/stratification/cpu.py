"""The compiled stratification stack as differentiable torch operations, for CPU tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.runtime.addresses import (
    KIND,
    address,
    array,
    empty,
    empty_with_address,
    optional,
    optional_rows,
    written,
    zeros,
)
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.in_graph import Kept, Shape
from ndstack.ops.runtime.stack_step import addresses_of_given, room_for_gradients
from ndstack.ops.runtime.threads import share
from ndstack.ops.stratification import loops as compiled
from ndstack.ops.stratification import step_loops


def forward_step(elements: Tensor, given: Sequence[Tensor], limit: int) -> tuple[Tensor, Tensor]:
    """Make one step, as `stack_step.StepKernel` describes it; there is no limit."""
    (batch, k, width), dtype = elements.shape, elements.dtype
    new, new_at = empty_with_address(dtype, batch, k + 1, width)
    reading, reading_at = empty_with_address(dtype, batch, width - 1)
    step_loops.step(
        KIND[dtype], batch, k, width - 1, address(elements, dtype, batch, k, width),
        *addresses_of_given(given, dtype, batch, 2, width - 1), reading_at, new_at,
    )  # fmt: skip
    return reading, new


def backward_step(
    elements: Tensor,
    given: Sequence[Tensor],
    new: Tensor,
    grad_reading: Tensor | None,
    grad_new: Tensor | None,
) -> list[Tensor]:
    """Compute the adjoint of a step, as `stack_step.StepKernel` describes it."""
    (batch, k, width), dtype, after = elements.shape, elements.dtype, new.shape
    grads, places = room_for_gradients(elements, given)
    step_loops.step_backward(
        KIND[dtype], batch, k, width - 1, address(elements, dtype, batch, k, width),
        *addresses_of_given(given, dtype, batch, 2, width - 1), address(new, dtype, batch, k + 1, width),
        *optional_rows(grad_reading, dtype, batch, width - 1), optional(grad_new, dtype, *after), *places,
    )  # fmt: skip
    return grads


def scan(strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps, as `reference.scan` does."""
    result: tuple[Tensor, Tensor] = _Scan.apply(strengths, actions, vectors, logits)
    return result


class _Scan(Operation):
    @staticmethod
    def forward(
        ctx: Context, strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool
    ) -> tuple[Tensor, Tensor]:
        (lines, total, m), n, dtype = vectors.shape, actions.shape[1], vectors.dtype
        readings, final = empty(dtype, lines, n, m), empty(dtype, lines, total)
        weights, parents = empty(dtype, lines, n, 2), empty(torch.int32, lines, total)
        kept, befores = empty(dtype, lines, total), empty(dtype, lines, n)
        outputs = (weights, readings, final, parents, kept, befores)
        share(
            lines, compiled.scan, lines * n * m * 8, array(strengths, dtype, lines, total - n),
            array(actions, dtype, lines, n, 2), array(vectors, dtype, lines, total, m), logits,
            *(written(tensor, tensor.dtype, *tensor.shape) for tensor in outputs),
        )  # fmt: skip
        ctx.save_for_backward(weights, vectors, parents, kept, befores)
        ctx.logits = logits
        return readings, final

    @staticmethod
    def backward(ctx: Context, grad_readings: Tensor, grad_final: Tensor) -> Gradients:
        refuse_second_derivatives()
        weights, vectors, *record = ctx.saved_tensors
        (lines, n, _), (_, total, m), dtype = weights.shape, vectors.shape, vectors.dtype
        grad_strengths, grad_actions = empty(dtype, lines, total - n), empty(dtype, lines, n, 2)
        grad_vectors = zeros(dtype, lines, total, m)
        share(
            lines, compiled.scan_backward, lines * n * m * 16,
            array(weights, dtype, lines, n, 2), array(vectors, dtype, lines, total, m), ctx.logits,
            array(record[0], torch.int32, lines, total), array(record[1], dtype, lines, total),
            array(record[2], dtype, lines, n),
            array(grad_readings, dtype, lines, n, m), array(grad_final, dtype, lines, total),
            written(grad_strengths, dtype, lines, total - n), written(grad_actions, dtype, lines, n, 2),
            written(grad_vectors, dtype, lines, total, m),
        )  # fmt: skip
        return grad_strengths, grad_actions, grad_vectors, None


class _ScanInGraph:
    """`scan`; see `in_graph.Passes`."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (lines, n, _), (_, total, m) = given[1].shape, given[2].shape
        return [(lines, n, m), (lines, total)]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept, tuple[Tensor, ...]]:
        kept, (strengths, actions, vectors) = Kept(record), given
        return kept, _Scan.forward(kept, strengths, actions, vectors, bool(numbers[0]))

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        assert isinstance(kept, Kept)
        return _Scan.backward(kept, *grads)[:3]


passes = _ScanInGraph()
