"""A layer that many steps use, whose derivatives they add up in one place.

As an input of every step, a layer would get a tensor of derivatives from each, to be added up by
torch. Here it is one node in the graph of derivatives, to which the steps are tied by an empty
tensor, the `token`; it runs after all of them and hands on the sums.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from ndstack.kernels.rows import refuse_second_derivatives


class _Sums:
    """The derivatives by weight and bias so far, for the backward pass of each thread."""

    def __init__(self, shapes: tuple[torch.Size, torch.Size]) -> None:
        self._shapes = shapes
        self._known: dict[int, tuple[int, Tensor, Tensor]] = {}

    def current(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the backward pass that is going on in this thread, to be added to."""
        thread, task = threading.get_ident(), torch._C._current_graph_task_id()
        known = self._known.get(thread)
        if known is None or known[0] != task:
            known = task, like.new_zeros(self._shapes[0]), like.new_zeros(self._shapes[1])
            self._known[thread] = known
        return known[1], known[2]

    def taken(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The same, which are not needed here any more."""
        sums = self.current(like)
        del self._known[threading.get_ident()]
        return sums


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, sums: _Sums) -> Tensor:
        ctx.sums = sums
        ctx.set_materialize_grads(False)
        token = weight.new_empty(0)
        ctx.save_for_backward(token)
        return token

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        refuse_second_derivatives()
        (token,) = ctx.saved_tensors
        return *ctx.sums.taken(token), None


class SharedLayer:
    """Weight [C, H] and bias [C], as steps of a stack use them.

    Attributes:
        weight, bias: contiguous, for reading.
        token: an input of every step; the steps add to `sums.current`.
    """

    __slots__ = ("_given", "bias", "sums", "token", "weight")

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._given = weight, bias
        self.weight, self.bias = weight.detach().contiguous(), bias.detach().contiguous()
        self.sums = _Sums((weight.shape, bias.shape))
        apply: Any = _Share.apply
        self.token: Tensor = apply(weight, bias, self.sums)

    def serves(self, weight: Tensor, bias: Tensor) -> bool:
        """Whether it can stand for these."""
        own, known = self._given, self.token.requires_grad
        return own[0] is weight and own[1] is bias and (known or not torch.is_grad_enabled())


def shared(known: SharedLayer | None, weight: Tensor, bias: Tensor) -> SharedLayer:
    """The layer of the step before, if it is the same; else a new one."""
    return known if known is not None and known.serves(weight, bias) else SharedLayer(weight, bias)
