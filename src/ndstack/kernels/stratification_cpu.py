"""The compiled stratification stack as differentiable torch operations, for CPU tensors."""

from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import stratification_numba as compiled
from ndstack.kernels import stratification_step_numba as single
from ndstack.kernels.driving import Gradients, Saved
from ndstack.kernels.memory_numba import KIND
from ndstack.kernels.rows import (
    as_array,
    check_state,
    locate,
    over_rows,
    refuse_second_derivatives,
    with_stride,
)


def step(elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.stratification.step`."""
    return _Step.apply(elements, actions, vectors)  # type: ignore[no-any-return, no-untyped-call]


def forward_drive(
    elements: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.driving.Kernel` wants it; there is no limit."""
    batch, k, width = elements.shape
    check_state(bias.shape[0] == 1 + width)
    new = elements.new_empty((batch, k + 1, width))
    reading = elements.new_empty((batch, width - 1))
    single.drive(
        KIND[elements.dtype], batch, k, width - 1, elements.data_ptr(),
        *locate(hidden), hidden.shape[1], weight.data_ptr(), bias.data_ptr(),
        reading.data_ptr(), new.data_ptr(),
    )  # fmt: skip
    return reading, new


def backward_drive(saved: Saved, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
    """As `ndstack.kernels.driving.Kernel` wants it."""
    elements, hidden, weight, bias, new = saved
    batch, k, width = elements.shape
    grads = (
        torch.empty_like(elements),
        torch.empty_like(hidden),
        torch.empty_like(weight),
        torch.empty_like(bias),
    )
    single.drive_backward(
        KIND[elements.dtype], batch, k, width - 1, elements.data_ptr(),
        *locate(hidden), hidden.shape[1], weight.data_ptr(), bias.data_ptr(), new.data_ptr(),
        *locate(grad_reading), locate(grad_new)[0],
        grads[0].data_ptr(), grads[1].data_ptr(), grads[2].data_ptr(), grads[3].data_ptr(),
    )  # fmt: skip
    return grads


def scan(strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.stratification.scan`."""
    return _Scan.apply(strengths, actions, vectors, logits)  # type: ignore[no-any-return, no-untyped-call]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool
    ) -> tuple[Tensor, Tensor]:
        (rows, n, _), (_, total, m) = actions.shape, vectors.shape
        readings, final = vectors.new_empty(rows, n, m), vectors.new_empty(rows, total)
        weights = vectors.new_empty(rows, n, 2)
        parents = torch.empty(rows, total, dtype=torch.int32)
        kept, befores = vectors.new_empty(rows, total), vectors.new_empty(rows, n)
        outputs = (weights, readings, final, parents, kept, befores)
        over_rows(
            compiled.scan, rows, n * m * 8, as_array(strengths), as_array(actions),
            as_array(vectors), logits, *map(as_array, outputs),
        )  # fmt: skip
        ctx.save_for_backward(weights, vectors, parents, kept, befores)
        ctx.logits = logits
        return readings, final

    @staticmethod
    def backward(ctx: Any, grad_readings: Tensor, grad_final: Tensor) -> Any:
        refuse_second_derivatives()
        weights, vectors, *record = ctx.saved_tensors
        (rows, n, _), (_, total, m) = weights.shape, vectors.shape
        grad_strengths, grad_actions = weights.new_empty(rows, total - n), torch.empty_like(weights)
        grad_vectors = vectors.new_zeros(vectors.shape)
        over_rows(
            compiled.scan_backward, rows, n * m * 16, as_array(weights), as_array(vectors),
            ctx.logits, *map(as_array, record), as_array(grad_readings), as_array(grad_final),
            as_array(grad_strengths), as_array(grad_actions), as_array(grad_vectors),
        )  # fmt: skip
        return grad_strengths, grad_actions, grad_vectors, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        elements, actions = elements.contiguous(), with_stride(actions)
        vectors = with_stride(vectors)
        batch, k, width = elements.shape
        check_state(vectors.shape[1] == width - 1)
        new = elements.new_empty((batch, k + 1, width))
        reading = elements.new_empty((batch, width - 1))
        single.step(
            KIND[elements.dtype], batch, k, width - 1, elements.data_ptr(),
            *locate(actions), *locate(vectors), reading.data_ptr(), new.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(elements, actions, new)
        ctx.set_materialize_grads(False)
        return reading, new

    @staticmethod
    def backward(ctx: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
        refuse_second_derivatives()
        elements, actions, new = ctx.saved_tensors
        batch, k, width = elements.shape
        shapes = (elements.shape, actions.shape, (batch, width - 1))
        grads = [elements.new_empty(shape) for shape in shapes]
        if grad_reading is not None:
            grad_reading = with_stride(grad_reading)
        if grad_new is not None:
            grad_new = grad_new.contiguous()
        single.step_backward(
            KIND[elements.dtype], batch, k, width - 1, elements.data_ptr(),
            *locate(actions), new.data_ptr(), *locate(grad_reading), locate(grad_new)[0],
            grads[0].data_ptr(), grads[1].data_ptr(), grads[2].data_ptr(),
        )  # fmt: skip
        return tuple(grads)
