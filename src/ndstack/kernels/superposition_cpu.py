"""The compiled superposition stack as differentiable torch operations, for CPU tensors.

A scan keeps a copy of the stack every sqrt(n) steps and does the steps between again on the way
back, so its memory grows as n^1.5 m, not n^2 m.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ndstack.kernels import superposition_numba as compiled
from ndstack.kernels.rows import as_array, over_rows

_NO_LIMIT = 2**62


def step(
    cells: Tensor, weights: Tensor, vectors: Tensor, depth: int | None
) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.superposition.step`."""
    reading, new = _Step.apply(cells, weights, vectors, depth or _NO_LIMIT)  # type: ignore[no-untyped-call]
    return reading, new


def scan(
    cells: Tensor, weights: Tensor, vectors: Tensor, depth: int | None, only_readings: bool
) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.superposition.scan`."""
    inputs = (cells, weights, vectors)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    readings, final = _Scan.apply(*inputs, depth or _NO_LIMIT, only_readings, record)  # type: ignore[no-untyped-call]
    return readings, final


def _flat(tensor: Tensor) -> Any:
    """[N, h, m] as an array [N, h*m]."""
    return as_array(tensor).reshape(tensor.shape[0], tensor.shape[1] * tensor.shape[2])


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cells: Tensor, weights: Tensor, vectors: Tensor, depth: int
    ) -> tuple[Tensor, Tensor]:
        rows, height, m = cells.shape
        new = cells.new_empty(rows, min(height + 1, depth), m)
        reading = cells.new_empty(rows, m)
        compiled.step(
            0,
            rows,
            _flat(cells),
            as_array(weights),
            as_array(vectors),
            _flat(new),
            as_array(reading),
        )
        ctx.save_for_backward(cells, weights, vectors)
        ctx.set_materialize_grads(False)
        ctx.new_shape = new.shape
        return reading, new

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
        cells, weights, vectors = ctx.saved_tensors
        scratch = (
            cells.new_zeros(ctx.new_shape)
            if grad_new is None
            else grad_new.clone(memory_format=torch.contiguous_format)
        )
        if grad_reading is None:
            grad_reading = torch.zeros_like(vectors)
        grads = (
            cells.new_empty(cells.shape),
            weights.new_empty(weights.shape),
            vectors.new_empty(vectors.shape),
        )
        compiled.step_backward(
            0, cells.shape[0], _flat(cells), as_array(weights), as_array(vectors),
            _flat(scratch), as_array(grad_reading),
            _flat(grads[0]), as_array(grads[1]), as_array(grads[2]),
        )  # fmt: skip
        return *grads, None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cells: Tensor,
        weights: Tensor,
        vectors: Tensor,
        depth: int,
        only_readings: bool,
        record: bool,
    ) -> tuple[Tensor, Tensor]:
        (rows, start, m), n = cells.shape, vectors.shape[1]
        stride = max(1, math.isqrt(n))
        most = min(start + n, depth)
        if only_readings:
            most = min(most, (start + n) // 2 + 1)
        end = min(start + n, depth, 1) if only_readings else min(start + n, depth)
        saved = cells.new_empty((rows, -(-n // stride), most * m) if record else (rows, 0, 0))
        readings, final = vectors.new_empty(vectors.shape), cells.new_empty(rows, end, m)
        over_rows(
            compiled.scan, rows, n * most * m, _flat(cells), as_array(weights), as_array(vectors),
            depth, only_readings, stride, as_array(readings), _flat(final), as_array(saved),
        )  # fmt: skip
        if record:
            ctx.save_for_backward(weights, vectors, saved)
        ctx.settings = (start, depth, only_readings, stride)
        return readings, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_readings: Tensor, grad_final: Tensor) -> Any:
        weights, vectors, saved = ctx.saved_tensors
        start, depth, only_readings, stride = ctx.settings
        rows, n, m = vectors.shape
        grads = (
            vectors.new_empty(rows, start, m),
            weights.new_empty(weights.shape),
            vectors.new_empty(vectors.shape),
        )
        over_rows(
            compiled.scan_backward, rows, 3 * n * saved.shape[2], as_array(weights),
            as_array(vectors), start, depth, only_readings, stride, as_array(saved),
            as_array(grad_readings), _flat(grad_final),
            _flat(grads[0]), as_array(grads[1]), as_array(grads[2]),
        )  # fmt: skip
        return *grads, None, None, None
