"""Dropout, and its sum with what a sublayer was given: compiled on a CPU, torch's own elsewhere.

This module is all that the rest of the package may use of this folder. `loops.py` is the compiled version,
of which `cpu.py` makes a differentiable operation; `reference.py` is what it computes, given the factors.

On a CPU, torch draws random numbers one by one, which took a fifth of a training step of a small transformer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from ndstack.ops.runtime.autograd import compilable
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.dropout import cpu
else:
    cpu = LazyModule("ndstack.ops.dropout.cpu")


def drop(x: Tensor, rate: float, residual: Tensor | None = None) -> Tensor:
    """Return D x + residual; numbers of D are 0 with probability `rate`, and otherwise 1 / (1 - rate).

    Args:
        x: any tensor.
        rate: at least 0 and less than 1; nothing is dropped if it is 0.
        residual: a tensor of the same shape; zeros if not given.
    """
    if rate and x.numel() and compilable(x) and (residual is None or _alike(x, residual)):
        return cpu.drop(x, rate, residual)
    dropped = functional.dropout(x, rate) if rate else x
    return dropped if residual is None else residual + dropped


def _alike(x: Tensor, residual: Tensor) -> bool:
    return residual.is_cpu and residual.dtype is x.dtype and residual.shape == x.shape
