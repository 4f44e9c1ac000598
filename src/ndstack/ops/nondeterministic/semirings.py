"""The semirings in which the reference runs Lang's algorithm (section 4.7, second trick).

A semiring here is a pair of differentiable functions on tensors: a sum of products (`einsum`) and
the sum of two tensors (`add`). Gradients never become nan where everything is zero.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch_semiring_einsum as tse
from torch import Tensor


@functools.cache
def _compiled(equation: str) -> Any:
    return tse.compile_equation(equation)


class Semiring(ABC):
    """Sums and products of tensors."""

    zero: float
    one: float

    @abstractmethod
    def einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        """The sum of products that the equation describes."""

    @abstractmethod
    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, element by element."""


class Log(Semiring):
    """Weights are stored as logarithms: add is logaddexp, multiply is +."""

    zero = -math.inf
    one = 0.0

    def einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        """The sum of products that the equation describes."""
        result: Tensor = tse.log_einsum(_compiled(equation), left, right, grad_of_neg_inf=0.0)
        return result

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, element by element."""
        dead = torch.isneginf(left) & torch.isneginf(right)
        sums = torch.logaddexp(left.masked_fill(dead, 0.0), right.masked_fill(dead, 0.0))
        return sums.masked_fill(dead, -math.inf)


class _Real(Semiring):
    """Weights as they are."""

    zero = 0.0
    one = 1.0

    def einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum(equation, left, right)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class _Viterbi(Semiring):
    """Log weights with max for add. The gradient of a sum is the indicator of its best term, so
    the gradient of the best score is the best run.
    """

    zero = -math.inf
    one = 0.0

    def einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        best_term: Any = _BestTerm.apply
        best: Tensor = best_term(equation, left, right)
        return best

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.where(left >= right, left, right)


class _BestTerm(torch.autograd.Function):
    """max-plus einsum whose gradient goes to the two factors of the best term."""

    @staticmethod
    def forward(ctx: Any, equation: str, left: Tensor, right: Tensor) -> Tensor:
        best, choice = tse.log_viterbi_einsum_forward(_compiled(equation), left, right)
        ctx.equation, ctx.shapes = equation, (left.shape, right.shape)
        ctx.save_for_backward(best, choice)
        result: Tensor = best
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        best, choice = ctx.saved_tensors
        grad = grads[0].masked_fill(torch.isneginf(best), 0.0)
        inputs, output = ctx.equation.split("->")
        left, right = inputs.split(",")
        places = dict(zip(output, _grid(best), strict=True))
        summed = [letter for letter in dict.fromkeys(left + right) if letter not in output]
        places |= {letter: choice[..., j] for j, letter in enumerate(summed)}
        return None, *(
            grad.new_zeros(shape).index_put_(
                tuple(places[letter] for letter in letters), grad, accumulate=True
            )
            for letters, shape in zip((left, right), ctx.shapes, strict=True)
        )


def _grid(like: Tensor) -> Sequence[Tensor]:
    """The index of every element of a tensor along each of its dimensions."""
    sizes = [torch.arange(size, device=like.device) for size in like.shape]
    return torch.meshgrid(*sizes, indexing="ij")


LOG: Semiring = Log()
REAL: Semiring = _Real()
VITERBI: Semiring = _Viterbi()
