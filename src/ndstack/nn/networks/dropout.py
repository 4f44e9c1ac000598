"""Dropout with an optional residual connection."""

import torch
from torch import Tensor

from ndstack.ops.dropout import drop


class Dropout(torch.nn.Dropout):
    """`torch.nn.Dropout`, compiled on a CPU; called with h, too, it returns h + Dropout(x).

    As in torch, the random numbers follow from torch's generator; they are not the same ones.
    """

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return the numbers of x that are kept, scaled, plus the residual, if there is one."""
        return drop(x, self.p if self.training else 0.0, residual)
