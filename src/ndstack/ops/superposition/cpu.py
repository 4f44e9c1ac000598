"""The compiled superposition stack as differentiable torch operations, for CPU tensors.

A scan keeps a copy of the stack every sqrt(n) steps and does the steps between again on the way
back, so its memory grows as n^1.5 m, not n^2 m.
"""

import math
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
)
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.threads import share
from ndstack.ops.superposition import loops as compiled
from ndstack.ops.superposition import step_loops as single


def step(cells: Tensor, actions: Tensor, vectors: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.superposition.naive.step`."""
    result: tuple[Tensor, Tensor] = _Step.apply(cells, actions, vectors, depth)
    return result


def forward_from_hidden(
    cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.fused.one_step.Kernel` wants it."""
    (batch, stacks, height, m), dtype, units = cells.shape, cells.dtype, hidden.shape[1]
    new_height, size = min(height + 1, limit), (3 + m) * stacks
    new, new_at = empty_with_address(dtype, batch, stacks, new_height, m)
    reading, reading_at = empty_with_address(dtype, batch, stacks * m)
    single.step_from_hidden(
        KIND[dtype], batch, stacks, height, new_height, m, address(cells, dtype, batch, stacks, height, m),
        *rows(hidden, dtype, batch, units), units,
        address(weight, dtype, size, units), address(bias, dtype, size), reading_at, new_at,
    )  # fmt: skip
    return reading, new


def backward_from_hidden(
    saved: Sequence[Tensor], grad_reading: Tensor | None, grad_new: Tensor | None
) -> StepGradients:
    """As `ndstack.ops.fused.one_step.Kernel` wants it."""
    cells, hidden, weight, bias, new = saved
    (batch, stacks, height, m), dtype, units = cells.shape, cells.dtype, hidden.shape[1]
    size, given = (3 + m) * stacks, (cells.shape, (batch, units), ((3 + m) * stacks, units), bias.shape)
    grads = [empty_with_address(dtype, *shape) for shape in given]
    single.step_from_hidden_backward(
        KIND[dtype], batch, stacks, height, new.shape[2], m, address(cells, dtype, batch, stacks, height, m),
        *rows(hidden, dtype, batch, units), units,
        address(weight, dtype, size, units), address(bias, dtype, size),
        *optional_rows(grad_reading, dtype, batch, stacks * m), optional(grad_new, dtype, *new.shape),
        *(place for _, place in grads),
    )  # fmt: skip
    return grads[0][0], grads[1][0], grads[2][0], grads[3][0]


def scan(
    cells: Tensor,
    actions: Tensor,
    vectors: Tensor,
    depth: int,
    logits: bool,
    only_readings: bool,
) -> tuple[Tensor, Tensor]:
    """As `ndstack.ops.superposition.naive.scan`."""
    inputs = (cells, actions, vectors)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    result: tuple[Tensor, Tensor] = _Scan.apply(*inputs, depth, logits, only_readings, record)
    return result


class _Step(Operation):
    @staticmethod
    def forward(
        ctx: Context, cells: Tensor, actions: Tensor, vectors: Tensor, depth: int
    ) -> tuple[Tensor, Tensor]:
        cells, actions, vectors = cells.contiguous(), contiguous_rows(actions), contiguous_rows(vectors)
        (batch, stacks, height, m), dtype, new_height = (
            cells.shape,
            cells.dtype,
            min(cells.shape[2] + 1, depth),
        )
        new, new_at = empty_with_address(dtype, batch, stacks, new_height, m)
        reading, reading_at = empty_with_address(dtype, batch, stacks * m)
        single.step(
            KIND[dtype], batch, stacks, height, new_height, m,
            address(cells, dtype, batch, stacks, height, m),
            *rows(actions, dtype, batch, 3 * stacks), *rows(vectors, dtype, batch, stacks * m),
            reading_at, new_at,
        )  # fmt: skip
        ctx.save_for_backward(cells, actions, vectors)
        ctx.set_materialize_grads(False)
        ctx.new_height = new_height
        return reading, new

    @staticmethod
    def backward(ctx: Context, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        cells, actions, vectors = ctx.saved_tensors
        (batch, stacks, height, m), dtype = cells.shape, cells.dtype
        shapes = (cells.shape, (batch, 3 * stacks), (batch, stacks * m))
        grads = [empty_with_address(dtype, *shape) for shape in shapes]
        if grad_reading is not None:
            grad_reading = contiguous_rows(grad_reading)
        if grad_new is not None:
            grad_new = grad_new.contiguous()
        single.step_backward(
            KIND[dtype], batch, stacks, height, ctx.new_height, m,
            address(cells, dtype, batch, stacks, height, m),
            *rows(actions, dtype, *shapes[1]), *rows(vectors, dtype, *shapes[2]),
            *optional_rows(grad_reading, dtype, *shapes[2]),
            optional(grad_new, dtype, batch, stacks, ctx.new_height, m),
            *(place for _, place in grads),
        )  # fmt: skip
        return *(grad for grad, _ in grads), None


class _Scan(Operation):
    @staticmethod
    def forward(
        ctx: Context,
        cells: Tensor,
        actions: Tensor,
        vectors: Tensor,
        depth: int,
        logits: bool,
        only_readings: bool,
        record: bool,
    ) -> tuple[Tensor, Tensor]:
        (lines, start, m), n, dtype = cells.shape, vectors.shape[1], cells.dtype
        stride = max(1, math.isqrt(n))
        end = most = min(start + n, depth)
        if only_readings:
            end, most = min(end, 1), min(most, (start + n) // 2 + 1)
        kept = (lines, -(-n // stride), most * m) if record else (lines, 0, 0)
        shapes = ((lines, n, 3), (lines, n, m), (lines, end * m), kept)
        weights, readings, final, saved = outputs = [empty(dtype, *shape) for shape in shapes]
        share(
            lines, compiled.scan, lines * n * most * m,
            array(cells, dtype, lines, start, m).reshape(lines, start * m),
            array(actions, dtype, lines, n, 3), array(vectors, dtype, lines, n, m),
            logits, depth, only_readings, stride,
            *(written(tensor, dtype, *shape) for tensor, shape in zip(outputs, shapes, strict=True)),
        )  # fmt: skip
        if record:
            ctx.save_for_backward(weights, vectors, saved)
        ctx.settings, ctx.end = (logits, start, depth, only_readings, stride), end
        return readings, final.view(lines, end, m)

    @staticmethod
    def backward(ctx: Context, grad_readings: Tensor, grad_final: Tensor) -> Gradients:
        refuse_second_derivatives()
        weights, vectors, saved = ctx.saved_tensors
        (lines, n, m), dtype, start, end = vectors.shape, vectors.dtype, ctx.settings[1], ctx.end
        shapes = ((lines, start * m), (lines, n, 3), (lines, n, m))
        grads = [empty(dtype, *shape) for shape in shapes]
        share(
            lines, compiled.scan_backward, lines * 3 * n * saved.shape[2],
            array(weights, dtype, lines, n, 3), array(vectors, dtype, lines, n, m), *ctx.settings,
            array(saved, dtype, *saved.shape), array(grad_readings, dtype, lines, n, m),
            array(grad_final, dtype, lines, end, m).reshape(lines, end * m),
            *(written(tensor, dtype, *shape) for tensor, shape in zip(grads, shapes, strict=True)),
        )  # fmt: skip
        return grads[0].view(lines, start, m), *grads[1:], None, None, None, None
