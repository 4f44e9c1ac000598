# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""The superposition stack's scan as Triton kernels, one program per stack.

A copy of the stack is kept every sqrt(n) steps, and the steps between are done again on the way back. Cells
lie one after the other, top first, h m numbers in all; below the last one everything is 0, so the height can
be that of the end from the beginning.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.triton_launch import kernel

TILES = [{"TILE": 128, "warps": 4}, {"TILE": 256, "warps": 4}, {"TILE": 512, "warps": 8}]


@triton.jit
def advance(old, new, weights, vector, width, m, TILE: tl.constexpr):
    """new = push (vector, old) + noop old + pop (old without its top)."""
    push, noop, pop = tl.load(weights), tl.load(weights + 1), tl.load(weights + 2)
    for e0 in range(0, width, TILE):
        e = e0 + tl.arange(0, TILE)
        above = tl.load(old + e - m, (e >= m) & (e < width), 0.0) + tl.load(vector + e, e < m, 0.0)
        below = tl.load(old + e + m, e + m < width, 0.0)
        x = push * above + noop * tl.load(old + e, e < width, 0.0) + pop * below
        tl.store(new + e, x, e < width)


@triton.jit
def copy(source, target, width, TILE: tl.constexpr):
    """target = source."""
    for e0 in range(0, width, TILE):
        e = e0 + tl.arange(0, TILE)
        tl.store(target + e, tl.load(source + e, e < width, 0.0), e < width)


@kernel(TILES, key=["m"])
def scan_kernel(cells, weights, vectors, readings, saved, steps, width, m, stride, TILE: tl.constexpr):
    """All steps of a stack.

    Args:
        cells: [N, 2, width], the first stack of which is given; the stack after step t is at t mod 2.
        saved: [N, segments, width], the stacks before steps 0, stride, 2 stride, ...
    """
    line = tl.program_id(0).to(tl.int64)
    cells += line * 2 * width
    weights += line * steps * 3
    vectors += line * steps * m
    readings += line * steps * m
    saved += line * tl.cdiv(steps, stride) * width
    for t in range(0, steps):
        old, new = cells + (t % 2) * width, cells + ((t + 1) % 2) * width
        if t % stride == 0:
            copy(old, saved + (t // stride) * width, width, TILE)
        advance(old, new, weights + t * 3, vectors + t * m, width, m, TILE)
        tl.debug_barrier()
        copy(new, readings + t * m, m, TILE)


@kernel(TILES, key=["m"], changes=["grads"])
def back_kernel(
    weights, vectors, saved, history, grad_readings, grads, grad_weights, grad_vectors,
    steps, width, m, stride, TILE: tl.constexpr,
):  # fmt: skip
    """All steps of a stack, from the last to the first.

    Args:
        history: [N, stride, width], room for the stacks before the steps of a segment.
        grads: [N, 2, width], with respect to the stack after step t at t mod 2; the last one is given.
    """
    line = tl.program_id(0).to(tl.int64)
    weights += line * steps * 3
    grad_weights += line * steps * 3
    vectors += line * steps * m
    grad_vectors += line * steps * m
    grad_readings += line * steps * m
    saved += line * tl.cdiv(steps, stride) * width
    history += line * stride * width
    grads += line * 2 * width
    for back in range(0, tl.cdiv(steps, stride)):
        first = (tl.cdiv(steps, stride) - 1 - back) * stride
        count = tl.minimum(stride, steps - first)
        copy(saved + (first // stride) * width, history, width, TILE)
        tl.debug_barrier()
        for s in range(1, count):
            t = first + s - 1
            old = history + (s - 1) * width
            advance(old, old + width, weights + t * 3, vectors + t * m, width, m, TILE)
            tl.debug_barrier()
        for s in range(count - 1, -1, -1):
            t = first + s
            old, above = history + s * width, vectors + t * m
            own, before = grads + ((t + 1) % 2) * width, grads + (t % 2) * width
            push, noop, pop = (
                tl.load(weights + t * 3),
                tl.load(weights + t * 3 + 1),
                tl.load(weights + t * 3 + 2),
            )
            for e0 in range(0, m, TILE):
                e = e0 + tl.arange(0, TILE)
                g = tl.load(own + e, e < m, 0.0) + tl.load(grad_readings + t * m + e, e < m, 0.0)
                tl.store(own + e, g, e < m)
                tl.store(grad_vectors + t * m + e, push * g, e < m)
            tl.debug_barrier()
            by_push, by_noop, by_pop = push * 0.0, push * 0.0, push * 0.0
            for e0 in range(0, width, TILE):
                e = e0 + tl.arange(0, TILE)
                g = tl.load(own + e, e < width, 0.0)
                x = tl.load(old + e - m, (e >= m) & (e < width), 0.0) + tl.load(above + e, e < m, 0.0)
                by_push += tl.sum(g * x, 0)
                by_noop += tl.sum(g * tl.load(old + e, e < width, 0.0), 0)
                by_pop += tl.sum(g * tl.load(old + e + m, e + m < width, 0.0), 0)
                deeper = tl.load(own + e + m, e + m < width, 0.0)
                higher = tl.load(own + e - m, (e >= m) & (e < width), 0.0)
                tl.store(before + e, push * deeper + noop * g + pop * higher, e < width)
            tl.store(grad_weights + t * 3, by_push)
            tl.store(grad_weights + t * 3 + 1, by_noop)
            tl.store(grad_weights + t * 3 + 2, by_pop)
            tl.debug_barrier()


def scan(
    cells: Tensor, actions: Tensor, vectors: Tensor, depth: int, logits: bool, only_readings: bool
) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps, as `reference.scan` does."""
    weights = actions.softmax(-1) if logits else actions
    end = min(cells.shape[1] + vectors.shape[1], depth)
    result: tuple[Tensor, Tensor] = _Scan.apply(
        cells, weights, vectors, end, min(end, 1) if only_readings else end
    )
    return result


class _Scan(Operation):
    @staticmethod
    def forward(
        ctx: Context, cells: Tensor, weights: Tensor, vectors: Tensor, height: int, shown: int
    ) -> tuple[Tensor, Tensor]:
        (lines, start, m), n = cells.shape, vectors.shape[1]
        weights, vectors = weights.contiguous(), vectors.contiguous()
        stride = max(1, math.isqrt(n))
        buffers = cells.new_zeros(lines, 2, height * m)
        buffers[:, 0, : min(start, height) * m] = cells[:, :height].flatten(1)
        readings = torch.empty_like(vectors)
        saved = cells.new_empty(lines, -(-n // stride), height * m)
        if lines:
            scan_kernel[(lines,)](buffers, weights, vectors, readings, saved, n, height * m, m, stride)
        ctx.save_for_backward(weights, vectors, saved)
        ctx.sizes = start, height, shown, stride
        return readings, buffers[:, n % 2].view(lines, height, m)[:, :shown]

    @staticmethod
    def backward(ctx: Context, grad_readings: Tensor, grad_final: Tensor) -> Gradients:
        refuse_second_derivatives()
        weights, vectors, saved = ctx.saved_tensors
        (lines, n, m), (start, height, shown, stride) = vectors.shape, ctx.sizes
        grads = vectors.new_zeros(lines, 2, height * m)
        grads[:, n % 2, : shown * m] = grad_final.flatten(1)
        by_weights, by_vectors = torch.empty_like(weights), torch.empty_like(vectors)
        history = vectors.new_empty(lines, stride, height * m)
        if lines:
            back_kernel[(lines,)](
                weights, vectors, saved, history, grad_readings.contiguous(), grads, by_weights, by_vectors,
                n, height * m, m, stride,
            )  # fmt: skip
        first = vectors.new_zeros(lines, start, m)
        first[:, :height] = grads[:, 0].view(lines, height, m)[:, :start]
        return first, by_weights, by_vectors, None, None
