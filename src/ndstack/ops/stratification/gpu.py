# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""The stratification stack's strengths as Triton kernels, one program per stack.

A program holds all strengths in registers. It leaves what each element contributes to each reading,
[N, n, k + n], with which the readings are one product of matrices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.triton_launch import kernel, power_of_two

WARPS = [{"PARTS": 1, "warps": 1}, {"PARTS": 1, "warps": 4}, {"PARTS": 1, "warps": 8}]


@triton.jit
def above(strengths):
    """The sum of the strengths above each element."""
    return tl.cumsum(strengths, 0, reverse=True) - strengths


@triton.jit
def relu(x):
    """max(0, x)."""
    return tl.where(x > 0, x, 0.0)


@kernel(WARPS, key=["LENGTH"])
def scan_kernel(actions, history, weights, steps, given, LENGTH: tl.constexpr, PARTS: tl.constexpr):
    """All steps of a stack.

    Args:
        actions: [N, n, 2], push and pop.
        history: [N, n + 1, k + n], strengths, the first ones given.
        weights: [N, n, k + n], of the readings.
    """
    line, total = tl.program_id(0).to(tl.int64), given + steps
    actions += line * steps * 2
    history += line * (steps + 1) * total
    weights += line * steps * total
    i = tl.arange(0, LENGTH)
    s = tl.load(history + i, i < total, 0.0)
    for t in range(0, steps):
        push, pop = tl.load(actions + 2 * t), tl.load(actions + 2 * t + 1)
        s = relu(s - relu(pop - above(s)))
        s = tl.where(i == given + t, push, s)
        tl.store(history + (t + 1) * total + i, s, i < total)
        tl.store(weights + t * total + i, tl.minimum(s, relu(1 - above(s))), i < total)


@kernel(WARPS, key=["LENGTH"])
def back_kernel(
    actions, history, grad_weights, grad_last, grad_actions, grad_first, steps, given,
    LENGTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """All steps of a stack, from the last to the first."""
    line, total = tl.program_id(0).to(tl.int64), given + steps
    actions += line * steps * 2
    grad_actions += line * steps * 2
    history += line * (steps + 1) * total
    grad_weights += line * steps * total
    i = tl.arange(0, LENGTH)
    g = tl.load(grad_last + line * total + i, i < total, 0.0)
    for back in range(0, steps):
        t = steps - 1 - back
        known = i <= given + t
        s = tl.load(history + (t + 1) * total + i, i < total, 0.0)
        w = tl.load(grad_weights + t * total + i, known & (i < total), 0.0)
        room = 1 - above(s)
        own = tl.where(s < relu(room), 1.0, tl.where(s == relu(room), 0.5, 0.0))  # as torch.minimum has it
        by_room = tl.where(room > 0, w * (1 - own), 0.0)
        g += w * own - (tl.cumsum(by_room, 0) - by_room)
        g = tl.where(known, g, 0.0)
        tl.store(grad_actions + 2 * t, tl.sum(tl.where(i == given + t, g, 0.0), 0))
        g = tl.where(i == given + t, 0.0, g)
        s = tl.load(history + t * total + i, i < given + t, 0.0)
        rest = tl.load(actions + 2 * t + 1) - above(s)
        g = tl.where(s - relu(rest) > 0, g, 0.0)
        by_rest = tl.where(rest > 0, -g, 0.0)
        tl.store(grad_actions + 2 * t + 1, tl.sum(by_rest, 0))
        g -= tl.cumsum(by_rest, 0) - by_rest
    tl.store(grad_first + line * given + i, g, i < given)


def scan(strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps, as `reference.scan` does."""
    weights, last = _Strengths.apply(strengths, actions.sigmoid() if logits else actions)
    finite = vectors.isfinite()
    known = (~finite).long().cumsum(1)[:, vectors.shape[1] - actions.shape[1] :] == 0
    readings = weights @ torch.where(finite, vectors, 0.0)
    return readings * readings.new_ones(()).where(known, torch.nan), last


class _Strengths(Operation):
    @staticmethod
    def forward(ctx: Context, strengths: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        (lines, given), n, actions = strengths.shape, actions.shape[1], actions.contiguous()
        history = actions.new_zeros(lines, n + 1, given + n)
        history[:, 0, :given] = strengths
        weights = actions.new_empty(lines, n, given + n)
        if lines:
            scan_kernel[(lines,)](actions, history, weights, n, given, LENGTH=power_of_two(given + n))
        ctx.save_for_backward(actions, history)
        return weights, history[:, -1]

    @staticmethod
    def backward(ctx: Context, grad_weights: Tensor, grad_last: Tensor) -> Gradients:
        refuse_second_derivatives()
        actions, history = ctx.saved_tensors
        lines, n, given = len(actions), actions.shape[1], history.shape[2] - actions.shape[1]
        by_actions, by_first = torch.empty_like(actions), actions.new_zeros(lines, given)
        if lines:
            back_kernel[(lines,)](
                actions, history, grad_weights.contiguous(), grad_last.contiguous(), by_actions, by_first,
                n, given, LENGTH=power_of_two(given + n),
            )  # fmt: skip
        return by_first, by_actions
