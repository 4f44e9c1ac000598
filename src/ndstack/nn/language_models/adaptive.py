"""An output layer for large vocabularies: adaptive softmax (Grave et al., 2017), as torch has it.

Rare symbols share one place in a first softmax, and a second, over vectors of a quarter of the size, tells
them apart. It expects common symbols first, so the string boundary, whose index is the last, goes first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.errors import NdstackError


class AdaptiveOutput(torch.nn.Module):
    """Log probabilities, which are logits too, of all symbols from the output of a network.

    Args:
        features: of the network's output.
        symbols: how many there are, the string boundary last, all others from common to rare.
    """

    def __init__(self, features: int, symbols: int) -> None:
        super().__init__()
        if features < 16 or symbols < 4:
            raise NdstackError(
                f"adaptive softmax over {symbols} symbols from {features} numbers asked for, expected 4 or "
                "more symbols and 16 or more numbers; use output='full'"
            )
        cutoffs = sorted({max(1, symbols // 10), max(1, symbols // 2)})
        self.inner = torch.nn.AdaptiveLogSoftmaxWithLoss(features, symbols, cutoffs, div_value=4.0)

    @property
    def weight(self) -> Tensor:
        """Of the first softmax: tells dtype and device."""
        return self.inner.head.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log probabilities [..., symbols] from outputs [..., features]."""
        log_p = self.inner.log_prob(hidden.flatten(0, -2))
        return log_p.roll(-1, dims=1).view(*hidden.shape[:-1], -1)

    def total_loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of -log p of targets [N], given outputs [N, features], without other symbols."""
        chosen: Tensor = self.inner(hidden, (targets + 1) % self.inner.n_classes).output
        return -chosen.sum()
