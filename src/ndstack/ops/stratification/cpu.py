"""The compiled stratification stack as differentiable torch operations, for CPU tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.fused.one_step import StepGradients
from ndstack.ops.runtime.addresses import (
    KIND,
    address,
    array,
    empty,
    empty_with_address,
    optional,
    optional_rows,
    rows,
    written,
    zeros,
)
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.threads import share
from ndstack.ops.stratification import loops as compiled
from ndstack.ops.stratification import step_loops as single


def step(elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.stratification.naive.step`."""
    result: tuple[Tensor, Tensor] = _Step.apply(elements, actions, vectors)
    return result


def forward_from_hidden(
    elements: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.fused.one_step.Kernel` wants it; there is no limit."""
    (batch, k, width), dtype, units = elements.shape, elements.dtype, hidden.shape[1]
    new, new_at = empty_with_address(dtype, batch, k + 1, width)
    reading, reading_at = empty_with_address(dtype, batch, width - 1)
    single.step_from_hidden(
        KIND[dtype], batch, k, width - 1, address(elements, dtype, batch, k, width),
        *rows(hidden, dtype, batch, units), units,
        address(weight, dtype, 1 + width, units), address(bias, dtype, 1 + width), reading_at, new_at,
    )  # fmt: skip
    return reading, new


def backward_from_hidden(
    saved: Sequence[Tensor], grad_reading: Tensor | None, grad_new: Tensor | None
) -> StepGradients:
    """As `ndstack.ops.fused.one_step.Kernel` wants it."""
    elements, hidden, weight, bias, new = saved
    (batch, k, width), dtype, units = elements.shape, elements.dtype, hidden.shape[1]
    given = ((batch, k, width), (batch, units), (1 + width, units), (1 + width,))
    grads = [empty_with_address(dtype, *shape) for shape in given]
    after = (batch, k + 1, width)
    single.step_from_hidden_backward(
        KIND[dtype], batch, k, width - 1, address(elements, dtype, *given[0]),
        *rows(hidden, dtype, *given[1]), units,
        address(weight, dtype, *given[2]), address(bias, dtype, *given[3]), address(new, dtype, *after),
        *optional_rows(grad_reading, dtype, batch, width - 1), optional(grad_new, dtype, *after),
        *(place for _, place in grads),
    )  # fmt: skip
    return grads[0][0], grads[1][0], grads[2][0], grads[3][0]


def scan(strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.stratification.naive.scan`."""
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


class _Step(Operation):
    @staticmethod
    def forward(ctx: Context, elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        elements, actions = elements.contiguous(), contiguous_rows(actions)
        vectors = contiguous_rows(vectors)
        (batch, k, width), dtype = elements.shape, elements.dtype
        new, new_at = empty_with_address(dtype, batch, k + 1, width)
        reading, reading_at = empty_with_address(dtype, batch, width - 1)
        single.step(
            KIND[dtype], batch, k, width - 1, address(elements, dtype, batch, k, width),
            *rows(actions, dtype, batch, 2), *rows(vectors, dtype, batch, width - 1),
            reading_at, new_at,
        )  # fmt: skip
        ctx.save_for_backward(elements, actions, new)
        ctx.set_materialize_grads(False)
        return reading, new

    @staticmethod
    def backward(ctx: Context, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        elements, actions, new = ctx.saved_tensors
        (batch, k, width), dtype = elements.shape, elements.dtype
        shapes, after = ((batch, k, width), (batch, 2), (batch, width - 1)), (batch, k + 1, width)
        grads = [empty_with_address(dtype, *shape) for shape in shapes]
        if grad_reading is not None:
            grad_reading = contiguous_rows(grad_reading)
        if grad_new is not None:
            grad_new = grad_new.contiguous()
        single.step_backward(
            KIND[dtype], batch, k, width - 1, address(elements, dtype, *shapes[0]),
            *rows(actions, dtype, *shapes[1]), address(new, dtype, *after),
            *optional_rows(grad_reading, dtype, *shapes[2]), optional(grad_new, dtype, *after),
            *(place for _, place in grads),
        )  # fmt: skip
        return tuple(grad for grad, _ in grads)
