"""The compiled superposition stack as differentiable torch operations, for CPU tensors.

A scan keeps a copy of the stack every sqrt(n) steps and does the steps between again on the way
back, so its memory grows as n^1.5 m, not n^2 m.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import superposition_numba as compiled
from ndstack.kernels import superposition_step_numba as single
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


def step(cells: Tensor, actions: Tensor, vectors: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.superposition.step`."""
    return _Step.apply(cells, actions, vectors, depth)  # type: ignore[no-any-return, no-untyped-call]


def forward_drive(
    cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.driving.Kernel` wants it."""
    batch, stacks, height, m = cells.shape
    check_state(bias.shape[0] == (3 + m) * stacks)
    new_height = min(height + 1, limit)
    new = cells.new_empty((batch, stacks, new_height, m))
    reading = cells.new_empty((batch, stacks * m))
    single.drive(
        KIND[cells.dtype], batch, stacks, height, new_height, m, cells.data_ptr(),
        *locate(hidden), hidden.shape[1], weight.data_ptr(), bias.data_ptr(),
        reading.data_ptr(), new.data_ptr(),
    )  # fmt: skip
    return reading, new


def backward_drive(saved: Saved, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
    """As `ndstack.kernels.driving.Kernel` wants it."""
    cells, hidden, weight, bias, new = saved
    batch, stacks, height, m = cells.shape
    grads = (
        torch.empty_like(cells),
        torch.empty_like(hidden),
        torch.empty_like(weight),
        torch.empty_like(bias),
    )
    single.drive_backward(
        KIND[cells.dtype], batch, stacks, height, new.shape[2], m, cells.data_ptr(),
        *locate(hidden), hidden.shape[1], weight.data_ptr(), bias.data_ptr(),
        *locate(grad_reading), locate(grad_new)[0],
        grads[0].data_ptr(), grads[1].data_ptr(), grads[2].data_ptr(), grads[3].data_ptr(),
    )  # fmt: skip
    return grads


def scan(
    cells: Tensor,
    actions: Tensor,
    vectors: Tensor,
    depth: int,
    logits: bool,
    only_readings: bool,
) -> tuple[Tensor, Tensor]:
    """As `ndstack.kernels.superposition.scan`."""
    inputs = (cells, actions, vectors)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    return _Scan.apply(*inputs, depth, logits, only_readings, record)  # type: ignore[no-any-return, no-untyped-call]


def _flat(tensor: Tensor) -> Any:
    """[N, h, m] as an array [N, h*m]."""
    return as_array(tensor).reshape(tensor.shape[0], tensor.shape[1] * tensor.shape[2])


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cells: Tensor, actions: Tensor, vectors: Tensor, depth: int
    ) -> tuple[Tensor, Tensor]:
        cells, actions, vectors = cells.contiguous(), with_stride(actions), with_stride(vectors)
        batch, stacks, height, m = cells.shape
        check_state(actions.shape[1] == 3 * stacks and vectors.shape[1] == stacks * m)
        new_height = min(height + 1, depth)
        new = cells.new_empty((batch, stacks, new_height, m))
        reading = cells.new_empty((batch, stacks * m))
        single.step(
            KIND[cells.dtype], batch, stacks, height, new_height, m, cells.data_ptr(),
            *locate(actions), *locate(vectors), reading.data_ptr(), new.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(cells, actions, vectors)
        ctx.set_materialize_grads(False)
        ctx.new_height = new_height
        return reading, new

    @staticmethod
    def backward(ctx: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
        refuse_second_derivatives()
        cells, actions, vectors = ctx.saved_tensors
        grads = [torch.empty_like(tensor) for tensor in (cells, actions, vectors)]
        if grad_reading is not None:
            grad_reading = with_stride(grad_reading)
        if grad_new is not None:
            grad_new = grad_new.contiguous()
        batch, stacks, height, m = cells.shape
        single.step_backward(
            KIND[cells.dtype], batch, stacks, height, ctx.new_height, m, cells.data_ptr(),
            *locate(actions), *locate(vectors), *locate(grad_reading), locate(grad_new)[0],
            grads[0].data_ptr(), grads[1].data_ptr(), grads[2].data_ptr(),
        )  # fmt: skip
        return *grads, None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cells: Tensor,
        actions: Tensor,
        vectors: Tensor,
        depth: int,
        logits: bool,
        only_readings: bool,
        record: bool,
    ) -> tuple[Tensor, Tensor]:
        (rows, start, m), n = cells.shape, vectors.shape[1]
        stride = max(1, math.isqrt(n))
        end = most = min(start + n, depth)
        if only_readings:
            end, most = min(end, 1), min(most, (start + n) // 2 + 1)
        saved = cells.new_empty((rows, -(-n // stride), most * m) if record else (rows, 0, 0))
        weights, readings = actions.new_empty(actions.shape), vectors.new_empty(vectors.shape)
        final = cells.new_empty(rows, end, m)
        over_rows(
            compiled.scan, rows, n * most * m, _flat(cells), as_array(actions), as_array(vectors),
            logits, depth, only_readings, stride,
            as_array(weights), as_array(readings), _flat(final), as_array(saved),
        )  # fmt: skip
        if record:
            ctx.save_for_backward(weights, vectors, saved)
        ctx.settings = (logits, start, depth, only_readings, stride)
        return readings, final

    @staticmethod
    def backward(ctx: Any, grad_readings: Tensor, grad_final: Tensor) -> Any:
        refuse_second_derivatives()
        weights, vectors, saved = ctx.saved_tensors
        rows, n, m = vectors.shape
        grad_cells = vectors.new_empty(rows, ctx.settings[1], m)
        grad_actions, grad_vectors = weights.new_empty(weights.shape), vectors.new_empty(rows, n, m)
        over_rows(
            compiled.scan_backward, rows, 3 * n * saved.shape[2],
            as_array(weights), as_array(vectors), *ctx.settings, as_array(saved),
            as_array(grad_readings), _flat(grad_final),
            _flat(grad_cells), as_array(grad_actions), as_array(grad_vectors),
        )  # fmt: skip
        return grad_cells, grad_actions, grad_vectors, None, None, None, None
