"""Sequences that were given numbers without a meaning, which invalidate nothing but themselves.

A log weight that is nan or +inf, or a pushed vector with a number that is not finite, invalidates its
sequence from that step on: readings and attention are nan, whatever is given later, and all derivatives by
what the sequence was given are nan. The steps before and the other sequences of the batch are as they would
have been. To compute such a sequence again in a wider format would change nothing, so the precision guard
leaves it alone.

The functions here do so for whole sequences, whatever the backend. Compiled steps, and runs with a
controller, see it themselves: the mark of a invalid chart is a nan in `lost` (see `cpu.forward.Past`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ndstack.ops.runtime.autograd import refuse_second_derivatives


def invalid_steps(weights: Tensor, vectors: Tensor | None = None) -> Tensor | None:
    """Which steps of which sequences have no meaning, [B, n]; None if all have one.

    Args:
        weights: [B, n, A], log weights.
        vectors: [B, n, m], pushed.
    """
    if weights.numel() == 0:
        return None
    bad = ~(weights.detach().amax(-1) < math.inf)
    if vectors is not None:
        bad |= ~vectors.detach().isfinite().all(-1)
    return bad.long().cumsum(1) > 0 if bool(bad.any()) else None


def withhold(given: Tensor, invalid: Tensor) -> Tensor:
    """What is given, [B, n, ...], with zeros at invalid steps; derivatives of invalid sequences are nan."""
    apply: Any = _Withhold.apply
    result: Tensor = apply(given, invalid)
    return result


def invalidate_together(weights: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Log weights and vectors, where vectors that are not finite invalidate the weights, and are withheld."""
    if math.isfinite(vectors.detach().sum().item()):
        return weights, vectors
    invalid = invalid_steps(weights, vectors)
    if invalid is None:
        return weights, vectors
    nothing = torch.zeros_like(weights).masked_fill(invalid[..., None], math.nan)
    return weights + nothing, withhold(vectors, invalid)


def mark(result: Tensor, invalid: Tensor) -> Tensor:
    """Readings or attention, [B, n, ...], with nan at invalid steps, and in what flows back from there."""
    factors = result.new_ones(invalid.shape).masked_fill(invalid, math.nan)
    return result * _as_wide(factors, result)


def _as_wide(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of the first dimensions with as many dimensions as another one."""
    return tensor.reshape(*tensor.shape, *[1] * (like.dim() - tensor.dim()))


class _Withhold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, invalid: Tensor) -> Tensor:
        ctx.rows = invalid.any(1)
        return given.masked_fill(_as_wide(invalid, given), 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        refuse_second_derivatives()
        return grads[0].masked_fill(_as_wide(ctx.rows, grads[0]), math.nan), None
