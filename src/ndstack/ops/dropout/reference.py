"""Dropout in plain torch, for random factors that are given."""

from torch import Tensor


def drop(x: Tensor, factors: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return D x + residual."""
    return x * factors if residual is None else residual + x * factors
