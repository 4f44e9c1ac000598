"""-log p of symbols in plain torch."""

import torch
from torch import Tensor


def surprisals(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, symbols: int, count: int | None = None
) -> Tensor:
    """Return -log softmax(W h + b)[target], [B, n], or their sum over a count; 0 for negative targets."""
    logits = torch.nn.functional.linear(hidden, weight, bias)[..., :symbols]
    chosen = logits.log_softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    found = -chosen.masked_fill(targets < 0, 0.0)
    return found if count is None else found.sum() / count
