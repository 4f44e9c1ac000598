"""Compiled causal attention as a differentiable torch operation, for CPU tensors."""

import math

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.attention import loops, reference
from ndstack.ops.runtime.addresses import Array, array, empty, written
from ndstack.ops.runtime.autograd import Context, Gradients, Operation
from ndstack.ops.runtime.random_seeds import draw_seeds
from ndstack.ops.runtime.threads import share


def attend(parts: Tensor, dropout: float) -> Tensor:
    """Return what `ndstack.ops.attention.attend` does; the random numbers follow from torch's generator."""
    result: Tensor = _Attention.apply(parts, draw_seeds(dropout))
    return result


def factors(shape: tuple[int, int, int], seeds: Array, dtype: torch.dtype) -> Tensor:
    """Return what dropout multiplies weights by, [B, heads, n, n], for these three sizes."""
    batch, heads, n = shape
    found = empty(dtype, batch * heads, n, n)
    loops.factors(0, batch * heads, n, seeds, written(found, dtype, batch * heads, n, n))
    return found.view(batch, heads, n, n)


class _Attention(Operation):
    @staticmethod
    def forward(ctx: Context, parts: Tensor, seeds: Array) -> Tensor:
        (batch, n, _, heads, size), dtype = parts.shape, parts.dtype
        out, logs = empty(dtype, batch, n, heads * size), empty(dtype, batch * heads, n)
        share(
            batch * heads, loops.forward, batch * heads * n * n * (size + 20.0),
            array(parts, dtype, *parts.shape).reshape(-1), n, heads, size, _scale(size, dtype), seeds,
            written(out, dtype, *out.shape).reshape(-1), written(logs, dtype, *logs.shape),
        )  # fmt: skip
        ctx.save_for_backward(parts, out, logs)
        ctx.seeds = seeds
        return out

    @staticmethod
    def backward(ctx: Context, grad_out: Tensor) -> Gradients:
        parts, out, logs = ctx.saved_tensors
        (batch, n, _, heads, size), dtype = parts.shape, parts.dtype
        if torch.is_grad_enabled():  # second derivatives are wanted
            again = reference.attend(parts, factors((batch, heads, n), ctx.seeds, dtype))
            return torch.autograd.grad(again, parts, grad_out, create_graph=True)[0], None
        grad_parts = empty(dtype, *parts.shape)
        share(
            batch * heads, loops.backward, batch * heads * n * n * (3 * size + 30.0),
            array(parts, dtype, *parts.shape).reshape(-1), n, heads, size, _scale(size, dtype), ctx.seeds,
            array(out, dtype, *out.shape).reshape(-1), array(grad_out, dtype, *out.shape).reshape(-1),
            array(logs, dtype, *logs.shape), written(grad_parts, dtype, *parts.shape).reshape(-1),
        )  # fmt: skip
        return grad_parts, None


def _scale(size: int, dtype: torch.dtype) -> np.float32 | np.float64:
    number = 1 / math.sqrt(size)
    return np.float32(number) if dtype is torch.float32 else np.float64(number)
