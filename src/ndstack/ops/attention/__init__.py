"""Causal scaled dot-product attention with dropout on its weights: compiled on a CPU, torch's own elsewhere.

This module is all that the rest of the package may use of this folder. `reference.py` has the equation in
plain torch; `loops.py` is the compiled version, of which `cpu.py` makes a differentiable operation.

On a CPU, torch has a fast operation for attention without dropout only. With dropout it makes all n x n
weights and as many random numbers, and a training step of a small transformer spent half of its time there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ndstack.ops.runtime.autograd import compilable
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.attention import cpu
else:
    cpu = LazyModule("ndstack.ops.attention.cpu")


def attend(parts: Tensor, dropout: float) -> Tensor:
    """Return what each position of a string gets from those up to itself, [B, n, heads * size].

    Args:
        parts: [B, n, 3, heads, size], queries, keys and values.
        dropout: the rate of dropout on the weights.
    """
    if dropout and parts.numel() and compilable(parts):
        return cpu.attend(parts, dropout)
    queries, keys, values = parts.permute(2, 0, 3, 1, 4)
    attended = scaled_dot_product_attention(
        queries, keys, values, dropout_p=dropout, is_causal=parts.shape[1] > 1
    )
    return attended.transpose(1, 2).flatten(2)
