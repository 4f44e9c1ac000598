"""The compiled superposition stack as differentiable torch operations, for CPU tensors.

A scan keeps a copy of the stack every sqrt(n) steps and does the steps between them again on the way back, so
that its memory grows as n^1.5 m, not n^2 m.
"""

import math
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
)
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.in_graph import Kept, Shape, least
from ndstack.ops.runtime.stack_step import NO_LIMIT, addresses_of_given, room_for_gradients
from ndstack.ops.runtime.threads import share
from ndstack.ops.superposition import loops as compiled
from ndstack.ops.superposition import step_loops


def forward_step(cells: Tensor, given: Sequence[Tensor], limit: int) -> tuple[Tensor, Tensor]:
    """Make one step, as `stack_step.StepKernel` describes it."""
    (batch, stacks, height, m), dtype = cells.shape, cells.dtype
    new_height = min(height + 1, limit)
    new, new_at = empty_with_address(dtype, batch, stacks, new_height, m)
    reading, reading_at = empty_with_address(dtype, batch, stacks * m)
    step_loops.step(
        KIND[dtype], batch, stacks, height, new_height, m, address(cells, dtype, batch, stacks, height, m),
        *addresses_of_given(given, dtype, batch, 3 * stacks, stacks * m), reading_at, new_at,
    )  # fmt: skip
    return reading, new


def backward_step(
    cells: Tensor,
    given: Sequence[Tensor],
    new: Tensor,
    grad_reading: Tensor | None,
    grad_new: Tensor | None,
) -> list[Tensor]:
    """Compute the adjoint of a step, as `stack_step.StepKernel` describes it."""
    (batch, stacks, height, m), dtype = cells.shape, cells.dtype
    grads, places = room_for_gradients(cells, given)
    step_loops.step_backward(
        KIND[dtype], batch, stacks, height, new.shape[2], m, address(cells, dtype, batch, stacks, height, m),
        *addresses_of_given(given, dtype, batch, 3 * stacks, stacks * m),
        *optional_rows(grad_reading, dtype, batch, stacks * m), optional(grad_new, dtype, *new.shape),
        *places,
    )  # fmt: skip
    return grads


def scan(
    cells: Tensor, actions: Tensor, vectors: Tensor, depth: int, logits: bool, only_readings: bool
) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps, as `reference.scan` does."""
    inputs = (cells, actions, vectors)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    result: tuple[Tensor, Tensor] = _Scan.apply(*inputs, depth, logits, only_readings, record)
    return result


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


class _ScanInGraph:
    """`scan`; see `in_graph.Passes`."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (depth, _, only_readings), (lines, start, _), (_, n, m) = numbers, given[0].shape, given[2].shape
        end = start + n if depth == NO_LIMIT else least(start + n, depth)
        return [(lines, n, m), (lines, 1 if only_readings else end, m)]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept, tuple[Tensor, ...]]:
        (depth, logits, only_readings), kept = numbers, Kept(record)
        cells, actions, vectors = given
        return kept, _Scan.forward(
            kept, cells, actions, vectors, depth, bool(logits), bool(only_readings), record
        )

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        assert isinstance(kept, Kept)
        return _Scan.backward(kept, *grads)[:3]


passes = _ScanInGraph()
