"""The compiled stratification stack as differentiable torch operations, for CPU tensors."""

from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import stratification_numba as compiled
from ndstack.kernels.memory_numba import KIND
from ndstack.kernels.rows import (
    as_array,
    locate,
    over_rows,
    refuse_second_derivatives,
    with_stride,
)


def step(elements: Tensor, actions: Tensor, vectors: Tensor | None) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.stratification.step`."""
    return _Step.apply(elements, actions, vectors)  # type: ignore[no-any-return, no-untyped-call]


def scan(
    strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool
) -> tuple[Tensor, Tensor]:
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
    """A step. Without vectors, `actions` holds them too, after the logits and not yet squashed."""

    @staticmethod
    def forward(
        ctx: Any, elements: Tensor, actions: Tensor, vectors: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        elements, actions = elements.contiguous(), with_stride(actions)
        vectors = vectors if vectors is None else with_stride(vectors)
        batch, k, width = elements.shape
        new = elements.new_empty((batch, k + 1, width))
        reading = elements.new_empty((batch, width - 1))
        compiled.step(
            KIND[elements.dtype], batch, k, width - 1, vectors is None,
            elements.data_ptr(), *locate(actions, vectors, 2), reading.data_ptr(), new.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(elements, actions, new)
        ctx.set_materialize_grads(False)
        ctx.squash = vectors is None
        return reading, new

    @staticmethod
    def backward(ctx: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
        refuse_second_derivatives()
        elements, actions, new = ctx.saved_tensors
        batch, k, width = elements.shape
        grad_elements = elements.new_empty(elements.shape)
        grad_actions = elements.new_empty(actions.shape)
        grad_vectors = None if ctx.squash else elements.new_empty((batch, width - 1))
        reading_at = reading_stride = new_at = 0
        if grad_reading is not None:
            grad_reading = with_stride(grad_reading)
            reading_at, reading_stride = grad_reading.data_ptr(), grad_reading.stride(0)
        if grad_new is not None:
            grad_new = grad_new.contiguous()
            new_at = grad_new.data_ptr()
        compiled.step_backward(
            KIND[elements.dtype], batch, k, width - 1, ctx.squash,
            elements.data_ptr(), actions.data_ptr(), actions.stride(0), new.data_ptr(),
            reading_at, reading_stride, new_at,
            grad_elements.data_ptr(), *locate(grad_actions, grad_vectors, 2),
        )  # fmt: skip
        return grad_elements, grad_actions, grad_vectors
