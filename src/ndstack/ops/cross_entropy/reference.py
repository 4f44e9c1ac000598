"""-log p of symbols in plain torch."""

import torch
from torch import Tensor


def surprisals(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int) -> Tensor:
    """Return -log softmax(W h + b)[target], [B, n]; 0 where the target is negative."""
    logits = torch.nn.functional.linear(hidden, weight, bias)[..., :symbols]
    chosen = logits.log_softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -chosen.masked_fill(targets < 0, 0.0)
