"""-log p of symbols as a differentiable torch operation, for CPU tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.cross_entropy import loops, reference
from ndstack.ops.runtime.addresses import array, empty, written
from ndstack.ops.runtime.autograd import Context, Gradients, Operation
from ndstack.ops.runtime.threads import COST_OF_EXPONENTIAL, share
from ndstack.ops.runtime.torch_internals import plain_apply


def surprisals(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int) -> Tensor:
    """Return what `ndstack.ops.cross_entropy.surprisals` does."""
    if targets.numel() and int(targets.max()) >= symbols:  # compiled code does not look
        raise NdstackError(f"symbol index {int(targets.max())} given, expected indices below {symbols}")
    return _apply(hidden, weight, bias, targets, symbols)


class _Surprisals(Operation):
    @staticmethod
    def forward(
        ctx: Context, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int
    ) -> Tensor:
        rows, dtype = hidden.reshape(-1, hidden.shape[-1]), hidden.dtype
        shares = torch.addmm(bias[:symbols], rows, weight[:symbols].t())
        out, size = empty(dtype, *targets.shape), len(rows)
        share(
            _parts(size), loops.forward, COST_OF_EXPONENTIAL * float(shares.numel()),
            written(shares, dtype, size, symbols), array(targets, torch.int64, *targets.shape).reshape(-1),
            written(out, dtype, *targets.shape).reshape(-1),
        )  # fmt: skip
        ctx.save_for_backward(hidden, weight, bias, targets, shares)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        hidden, weight, _, targets, shares = ctx.saved_tensors
        (size, symbols), dtype = shares.shape, shares.dtype
        if torch.is_grad_enabled():  # second derivatives are wanted
            return _again(ctx, grad, symbols)
        by_logits = empty(dtype, size, symbols)
        share(
            _parts(size), loops.backward, 4.0 * shares.numel(),
            array(shares, dtype, size, symbols), array(targets, torch.int64, *targets.shape).reshape(-1),
            array(grad, dtype, *targets.shape).reshape(-1), written(by_logits, dtype, size, symbols),
        )  # fmt: skip
        by_hidden = (by_logits @ weight[:symbols]).view(hidden.shape)
        by_weight = by_logits.t() @ hidden.reshape(-1, hidden.shape[-1])
        rest = weight.shape[0] - symbols
        pad = torch.nn.functional.pad
        by_weight, by_bias = pad(by_weight, (0, 0, 0, rest)), pad(by_logits.sum(0), (0, rest))
        return by_hidden, by_weight, by_bias, None, None


def _again(ctx: Context, grad: Tensor, symbols: int) -> Gradients:
    """The derivatives as torch finds them, so that they can be differentiated."""
    hidden, weight, bias, targets, _ = ctx.saved_tensors
    given = (hidden, weight, bias)
    wanted = [tensor for tensor, needed in zip(given, ctx.needs_input_grad, strict=False) if needed]
    again = reference.surprisals(hidden, weight, bias, targets, symbols)
    found = iter(torch.autograd.grad(again, wanted, grad, create_graph=True))
    return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None, None


def _parts(size: int) -> int:
    return -(-size // loops.ROWS)


_apply: Callable[..., Tensor] = plain_apply(_Surprisals)
