"""Compiled dropout as a differentiable torch operation, for CPU tensors."""

import torch
from torch import Tensor

from ndstack.ops.dropout import loops, reference
from ndstack.ops.runtime.addresses import Array, array, empty, written
from ndstack.ops.runtime.autograd import Context, Gradients, Operation
from ndstack.ops.runtime.random_seeds import draw_seeds
from ndstack.ops.runtime.threads import share


def drop(x: Tensor, rate: float, residual: Tensor | None) -> Tensor:
    """Return what `ndstack.ops.dropout.drop` does; the random numbers follow from torch's generator."""
    result: Tensor = _Dropout.apply(x, residual, draw_seeds(rate))
    return result


def factors(shape: tuple[int, ...], seeds: Array, dtype: torch.dtype) -> Tensor:
    """Return D."""
    return _drop(torch.ones(shape, dtype=dtype), None, seeds)


def _drop(x: Tensor, residual: Tensor | None, seeds: Array) -> Tensor:
    out, dtype = empty(x.dtype, *x.shape), x.dtype
    numbers = array(x, dtype, *x.shape).reshape(-1)
    added = numbers[:0] if residual is None else array(residual, dtype, *x.shape).reshape(-1)
    share(
        -(-x.numel() // loops.PART), loops.drop, 10.0 * x.numel(),
        numbers, seeds, added, written(out, dtype, *x.shape).reshape(-1),
    )  # fmt: skip
    return out


class _Dropout(Operation):
    @staticmethod
    def forward(ctx: Context, x: Tensor, residual: Tensor | None, seeds: Array) -> Tensor:
        ctx.seeds = seeds
        return _drop(x, residual, seeds)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        added = grad if ctx.needs_input_grad[1] else None
        if torch.is_grad_enabled():  # second derivatives are wanted
            return reference.drop(grad, factors(tuple(grad.shape), ctx.seeds, grad.dtype)), added, None
        return _drop(grad, None, ctx.seeds), added, None
