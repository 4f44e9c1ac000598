"""Causal scaled dot-product attention in plain torch, as equation 10.1 has it (with i <= t).

    y_t = sum_{i <= t} D_ti softmax_i(q_t . k_i / sqrt(d)) v_i

D_ti is 1 without dropout; with dropout at a rate p, it is 0 with probability p and otherwise 1 / (1 - p).
"""

import math

import torch
from torch import Tensor


def attend(parts: Tensor, factors: Tensor | None = None) -> Tensor:
    """Return y, [B, n, heads * size].

    Args:
        parts: [B, n, 3, heads, size], queries, keys and values.
        factors: D, [B, heads, n, n]; ones if not given.
    """
    queries, keys, values = parts.permute(2, 0, 3, 1, 4)
    n, size = queries.shape[2:]
    scores = queries @ keys.transpose(2, 3) / math.sqrt(size)
    hidden = torch.ones(n, n, dtype=torch.bool, device=parts.device).triu(1)
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=3)
    if factors is not None:
        weights = weights * factors
    attended: Tensor = weights @ values
    return attended.transpose(1, 2).flatten(2)
