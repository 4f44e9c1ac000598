"""The compiled stratification stack as differentiable torch operations, for CPU tensors."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ndstack.kernels import stratification_numba as compiled
from ndstack.kernels.rows import as_array, over_rows


def step(
    strengths: Tensor, vectors: Tensor, push: Tensor, pop: Tensor, vector: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `ndstack.kernels.stratification.step`."""
    reading, new_strengths, new_vectors = _Step.apply(strengths, vectors, push, pop, vector)  # type: ignore[no-untyped-call]
    return reading, new_strengths, new_vectors


def scan(strengths: Tensor, push: Tensor, pop: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.stratification.scan`."""
    readings, final = _Scan.apply(strengths, push, pop, vectors)  # type: ignore[no-untyped-call]
    return readings, final


def _forward(
    strengths: Tensor, push: Tensor, pop: Tensor, vectors: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Readings, last strengths, and what the way back needs."""
    (rows, n), (_, total, m) = push.shape, vectors.shape
    readings, final = vectors.new_empty(rows, n, m), vectors.new_empty(rows, total)
    parents = torch.empty(rows, total, dtype=torch.int32)
    kept, befores = vectors.new_empty(rows, total), vectors.new_empty(rows, n)
    outputs = (readings, final, parents, kept, befores)
    over_rows(
        compiled.scan, rows, n * m * 8,
        as_array(strengths), as_array(push), as_array(pop), as_array(vectors),
        *map(as_array, outputs),
    )  # fmt: skip
    return readings, final, (parents, kept, befores)


def _backward(
    pop: Tensor,
    vectors: Tensor,
    record: tuple[Tensor, Tensor, Tensor],
    grad_readings: Tensor,
    grad_final: Tensor,
    grad_vectors: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives by strengths, push and pop; those by vectors are added to `grad_vectors`."""
    (rows, n), (_, total, m) = pop.shape, vectors.shape
    grads = pop.new_empty(rows, total - n), pop.new_empty(rows, n), pop.new_empty(rows, n)
    over_rows(
        compiled.scan_backward, rows, n * m * 16,
        as_array(pop), as_array(vectors), *map(as_array, record),
        as_array(grad_readings), as_array(grad_final), *map(as_array, grads),
        as_array(grad_vectors),
    )  # fmt: skip
    return grads


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, strengths: Tensor, push: Tensor, pop: Tensor, vectors: Tensor
    ) -> tuple[Tensor, Tensor]:
        readings, final, record = _forward(strengths, push, pop, vectors)
        ctx.save_for_backward(pop, vectors, *record)
        return readings, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_readings: Tensor, grad_final: Tensor) -> Any:
        pop, vectors, *record = ctx.saved_tensors
        grad_vectors = vectors.new_zeros(vectors.shape)
        grads = _backward(pop, vectors, tuple(record), grad_readings, grad_final, grad_vectors)
        return *grads, grad_vectors


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, strengths: Tensor, vectors: Tensor, push: Tensor, pop: Tensor, vector: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        pop = pop[:, None]
        vectors = torch.cat([vectors, vector[:, None]], dim=1)
        readings, final, record = _forward(strengths, push[:, None], pop, vectors)
        ctx.save_for_backward(pop, vectors, *record)
        ctx.set_materialize_grads(False)
        return readings[:, 0], final, vectors

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        grad_reading: Tensor | None,
        grad_final: Tensor | None,
        grad_vectors: Tensor | None,
    ) -> Any:
        pop, vectors, *record = ctx.saved_tensors
        rows, total, m = vectors.shape
        if grad_reading is None:
            grad_reading = vectors.new_zeros(rows, m)
        if grad_final is None:
            grad_final = vectors.new_zeros(rows, total)
        if grad_vectors is None:
            grad_vectors = vectors.new_zeros(vectors.shape)
        else:
            grad_vectors = grad_vectors.clone(memory_format=torch.contiguous_format)
        grad_strengths, grad_push, grad_pop = _backward(
            pop, vectors, tuple(record), grad_reading[:, None], grad_final, grad_vectors
        )
        return (
            grad_strengths, grad_vectors[:, :-1], grad_push[:, 0], grad_pop[:, 0],
            grad_vectors[:, -1],
        )  # fmt: skip
