"""Readings and attention by the reference, in log space: a backend, and the last resort of the guard.

All is done in float64, since a logarithm takes digits from its number: in float32 this would be the least
precise of the backends.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import naive
from ndstack.ops.nondeterministic.guard import invalid_steps, mark, withhold
from ndstack.ops.nondeterministic.settings import Setting, shaped


def in_log_space(
    actions: Tensor, setting: Setting, vectors: Tensor | None = None, bottom: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The readings [B, n, K] or [B, n, K, m], and the attention [B, n, K, n + 1] (empty if not wanted).

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
        vectors: [B, n, m], pushed; with them, zeta is computed as the equations of section 9.1 say.
        bottom: [m], the vector of the initial bottom symbol; zeros if not given.
    """
    batch, steps = actions.shape[:2]
    if batch == 0 or steps == 0:
        kinds = setting.states * setting.symbols
        sizes = (kinds,) if vectors is None else (kinds, vectors.shape[-1])
        return actions.new_zeros(batch, steps, *sizes), actions.new_zeros(batch, steps, kinds, steps + 1)
    invalid = invalid_steps(actions)
    valid = actions if invalid is None else withhold(actions, invalid)
    reading, attention = _by_equations(valid.double(), setting, vectors, bottom)
    if invalid is not None:
        reading, attention = mark(reading, invalid), mark(attention, invalid) if setting.attend else attention
    return reading.to(actions.dtype), attention.to(actions.dtype)


def _by_equations(
    actions: Tensor, setting: Setting, vectors: Tensor | None, bottom: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`in_log_space` in float64.

    Log space knows no negative numbers, so the vectors of a sequence are shifted to be positive; zeta is
    linear in them, and the shift comes off the reading again.
    """
    shift = shifted = low = None
    if vectors is not None:
        vectors = vectors.double()
        low = vectors.new_zeros(vectors.shape[-1]) if bottom is None else bottom.double()
        least = torch.minimum(vectors.detach().amin((1, 2)), low.detach().min())
        shift = torch.where(least > 0, 0.0, 1.0 - least)[:, None]
        shifted, low = (vectors + shift[:, None]).log(), (low + shift).log()
    weights = naive.run(
        *shaped(actions, setting),
        vectors=shifted,
        bottom=low,
        window=setting.window,
        bottom_fix=setting.bottom_fix,
    )
    alpha, places = weights.alpha.flatten(2), weights.places.flatten(2, 3)
    total = log_sum(alpha)[..., None]
    reading = quotient(alpha, total)
    attention = quotient(places, alpha[..., None]) if setting.attend else actions.new_zeros(0)
    if weights.vectors is not None and shift is not None:
        numerators = weights.vectors.flatten(2, 3)
        reading = quotient(numerators, total[..., None]) - shift[..., None, None] * reading[..., None]
    return reading, attention


def log_sum(x: Tensor) -> Tensor:
    """logsumexp over the last dimension, with zero gradients where all is -inf."""
    dead = torch.isneginf(x).all(-1)
    return torch.logsumexp(x.masked_fill(dead[..., None], 0.0), -1).masked_fill(dead, -math.inf)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """e^{x - y} for x <= y, and 0 with zero gradients where y is -inf."""
    return (x - y.masked_fill(torch.isneginf(y), 0.0)).exp()
