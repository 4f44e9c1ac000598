"""-log p of symbols, from the outputs of a network: affine layer, softmax and logarithm as one operation.

This module is all that the rest of the package may use of this folder. `reference.py` has the equation in
plain torch; `cpu.py` makes a differentiable operation of torch's matrix products and the loops of `loops.py`.

With few symbols, as formal languages have them, torch takes longer to call these operations one by one than
to compute them.
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

MOST = 64
"""For how many symbols at most there is one operation; with more, torch's own are as fast."""


def in_one_operation(weight: Tensor) -> bool:
    """Return whether `surprisals` can be computed by a layer with such a weight, [V, H]."""
    return weight.shape[0] <= MOST and compilable(weight) and not autocast_enabled()


def surprisals(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int) -> Tensor:
    """Return -log softmax(W h + b)[target], [B, n]; 0 where the target is negative.

    Args:
        hidden: [B, n, H].
        weight: W, [V, H].
        bias: b, [V].
        targets: [B, n], indices of symbols, int64.
        symbols: how many of the V symbols are possible, the first ones.
    """
    return cpu.surprisals(hidden, weight, bias, targets, symbols)
