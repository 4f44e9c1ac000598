"""-log p of symbols as a differentiable torch operation, for CPU tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.cross_entropy import loops, reference
from ndstack.ops.runtime.addresses import array, empty, written
from ndstack.ops.runtime.autograd import Context, Gradients, Operation
from ndstack.ops.runtime.torch_internals import plain_apply


def surprisals(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int, count: int | None = None
) -> Tensor:
    """Return what `ndstack.ops.cross_entropy.surprisals` does."""
    return _apply(hidden, weight, bias, targets, symbols, count)


class _Surprisals(Operation):
    @staticmethod
    def forward(
        ctx: Context,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        symbols: int,
        count: int | None,
    ) -> Tensor:
        (size, units), dtype, rows = weight.shape, hidden.dtype, targets.numel()
        shape, divisor = (tuple(targets.shape), -1) if count is None else ((), count)
        shares, out = empty(dtype, rows, symbols), empty(dtype, *shape)
        if not loops.forward(
            array(hidden, dtype, *targets.shape, units).reshape(-1, units), array(weight, dtype, size, units),
            array(bias, dtype, size), array(targets, torch.int64, *targets.shape).reshape(-1), divisor,
            written(shares, dtype, rows, symbols), written(out, dtype, *shape).reshape(-1),
        ):  # fmt: skip
            raise NdstackError(f"symbol index {int(targets.max())} given, expected indices below {symbols}")
        ctx.save_for_backward(hidden, weight, bias, targets, shares)
        ctx.divisor = divisor
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        if torch.is_grad_enabled():  # second derivatives are wanted
            return _again(ctx, grad)
        hidden, weight, _, targets, shares = ctx.saved_tensors
        (size, units), dtype = weight.shape, shares.dtype
        by_hidden, by_weight, by_bias = (
            empty(dtype, *shape) for shape in (hidden.shape, (size, units), (size,))
        )
        loops.backward(
            array(hidden, dtype, *targets.shape, units).reshape(-1, units), array(weight, dtype, size, units),
            array(targets, torch.int64, *targets.shape).reshape(-1), ctx.divisor,
            array(shares, dtype, *shares.shape), array(grad, dtype, *grad.shape).reshape(-1),
            written(by_hidden, dtype, *hidden.shape).reshape(-1, units),
            written(by_weight, dtype, size, units), written(by_bias, dtype, size),
        )  # fmt: skip
        return by_hidden, by_weight, by_bias, None, None, None


def _again(ctx: Context, grad: Tensor) -> Gradients:
    """The derivatives as torch finds them, so that they can be differentiated."""
    hidden, weight, bias, targets, shares = ctx.saved_tensors
    given = (hidden, weight, bias)
    wanted = [tensor for tensor, needed in zip(given, ctx.needs_input_grad, strict=False) if needed]
    count = None if ctx.divisor < 0 else ctx.divisor
    again = reference.surprisals(hidden, weight, bias, targets, shares.shape[1], count)
    found = iter(torch.autograd.grad(again, wanted, grad, create_graph=True))
    return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None, None, None


_apply: Callable[..., Tensor] = plain_apply(_Surprisals)
