"""The precision guard: float32, then float64, then log space; and sequences that are invalid.

A chart in float32 may lose runs to underflow. Every fast way to compute a chart says which sequences of the
batch can be trusted: those whose lost mass stays within `limits.LIMITS`. The others are computed again in
float64, and where that is not enough either, in log space by the reference. `redo` and `next_format` are that
rule, for whole sequences (`guarded_scan`), for steps (`guarded_steps`) and for runs with a controller
(`ndstack.nn.fused`), on every device.

A sequence is invalid from the step on at which it is given a log weight that is nan or +inf, or a pushed
vector with a number that is not finite. Its readings and its attention are nan from there on, whatever is
given later, and all derivatives with respect to what it was given are nan. The steps before and the other
sequences of the batch are as they would have been. A wider format would change nothing, so the guard leaves
invalid sequences alone. The functions here see to that for whole sequences; compiled steps, and runs with a
controller, do it themselves, with a nan in `Chart.lost` as the mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives

Way = TypeVar("Way")


def next_format(dtype: torch.dtype, in_float64: Way, in_log_space: Way) -> Way:
    """The way to compute that comes after one in this dtype."""
    return in_float64 if dtype == torch.float32 else in_log_space


def redo(
    results: Sequence[Tensor], untrusted: Tensor, again: Callable[[Tensor], Iterable[Tensor]]
) -> tuple[Tensor, ...]:
    """The results of a batch, those of untrusted sequences computed again.

    Args:
        results: [B, ...] each.
        untrusted: [B], which sequences are not to be trusted.
        again: gives the results of some sequences, by their places in the batch, in a wider format.
    """
    rows = untrusted.nonzero().squeeze(-1)
    if len(rows) == 0:
        return tuple(results)
    pairs = zip(results, again(rows), strict=True)
    return tuple(result.index_copy(0, rows, better.to(result)) for result, better in pairs)


def finite_sequences(*tensors: Tensor | None) -> Tensor:
    """Which sequences of a batch have finite numbers only, [B]; None counts as finite."""
    found = [tensor.isfinite().flatten(1).all(1) for tensor in tensors if tensor is not None]
    return torch.stack(found).all(0)


def invalid_steps(weights: Tensor, vectors: Tensor | None = None) -> Tensor | None:
    """Which steps of which sequences are invalid, [B, n]; None if there are none.

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
    result: Tensor = _Withhold.apply(given, invalid)
    return result


def invalidate_together(weights: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Log weights and vectors; vectors that are not finite make the weights invalid, and are withheld."""
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


class _Withhold(Operation):
    @staticmethod
    def forward(ctx: Context, given: Tensor, invalid: Tensor) -> Tensor:
        ctx.rows = invalid.any(1)
        return given.masked_fill(_as_wide(invalid, given), 0.0)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        refuse_second_derivatives()
        return grad.masked_fill(_as_wide(ctx.rows, grad), math.nan), None
