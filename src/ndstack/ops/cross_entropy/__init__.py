"""-log p of symbols, from the outputs of a network: affine layer, softmax and logarithm as one operation.

This module is all that the rest of the package may use of this folder. `reference.py` has the equation in
plain torch; `cpu.py` makes a differentiable operation of the loops of `loops.py`.

With few symbols, as formal languages have them, torch takes longer to call these operations one by one than
to compute them. With many, its matrix products are faster than these loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ndstack.ops.runtime.autograd import autocast_enabled, compilable
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.cross_entropy import cpu
else:
    cpu = LazyModule("ndstack.ops.cross_entropy.cpu")

MOST = 1_000_000
"""For how many multiply-adds of the affine layer at most there is one operation."""


def in_one_operation(weight: Tensor, positions: int) -> bool:
    """Return whether `surprisals` of so many positions are computed for a layer with a weight [V, H]."""
    return weight.numel() * positions <= MOST and compilable(weight) and not autocast_enabled()


def surprisals(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int, count: int | None = None
) -> Tensor:
    """Return -log softmax(W h + b)[target], [B, n]; 0 where the target is negative.

    Args:
        hidden: [B, n, H].
        weight: W, [V, H].
        bias: b, [V].
        targets: [B, n], indices of symbols, int64.
        symbols: how many of the V symbols are possible, the first ones.
        count: if given, the sum of all is returned, divided by this number.
    """
    return cpu.surprisals(hidden, weight, bias, targets, symbols, count)
