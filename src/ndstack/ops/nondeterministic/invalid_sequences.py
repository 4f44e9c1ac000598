"""Sequences that are invalid: those that were given a nan, or an infinite weight or vector.

A sequence is invalid from the step on at which it is given a log weight that is nan or +inf, or a pushed
vector with a number that is not finite. Its readings and its attention are nan from there on, whatever is
given later, and all derivatives with respect to what it was given are nan. The steps before and the other
sequences of the batch are as they would have been. The functions here see to that for whole sequences;
compiled steps, and runs with a controller, do it themselves, with a nan in `Chart.lost` as the mark.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.runtime import devices
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.tracing import recording


def invalid_steps(weights: Tensor, vectors: Tensor | None = None) -> Tensor | None:
    """Which steps of which sequences are invalid, [B, n]; None if there are none, and a look costs nothing.

    Args:
        weights: [B, n, A], log weights.
        vectors: [B, n, m], pushed.
    """
    if weights.numel() == 0:
        return None
    bad = ~(weights.detach().amax(-1) < math.inf)
    if vectors is not None:
        bad |= ~vectors.detach().isfinite().all(-1)
    if devices.on_host(bad) and not bool(bad.any()):
        return None
    return bad.long().cumsum(1) > 0


def withhold(given: Tensor, invalid: Tensor) -> Tensor:
    """What is given, [B, n, ...], with zeros at invalid steps; derivatives of invalid sequences are nan."""
    result: Tensor = _Withhold.apply(given, invalid)
    return result


def invalidate_together(weights: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Log weights and vectors; vectors that are not finite make the weights invalid, and are withheld."""
    if recording():
        return weights, vectors
    if devices.on_host(vectors) and math.isfinite(vectors.detach().sum().item()):
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


class _Withhold(Operation):
    @staticmethod
    def forward(ctx: Context, given: Tensor, invalid: Tensor) -> Tensor:
        ctx.rows = invalid.any(1)
        return given.masked_fill(_as_wide(invalid, given), 0.0)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        refuse_second_derivatives()
        rows = ctx.rows | grad.isnan().flatten(1).any(1)  # invalid here, or in a later call
        return grad.masked_fill(_as_wide(rows, grad), math.nan), None
