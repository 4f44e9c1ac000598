"""A network without its state, for places where a module has one output: `Sequential`, exporters."""

from __future__ import annotations

import torch
from torch import Tensor


class OutputOnly(torch.nn.Module):
    """A network that returns a pair, such as `StackRNN` or `StackAttention`, of which the first is kept.

    Args:
        network: what is called.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *given: Tensor, **options: Tensor) -> Tensor:
        """Call the network, and return its outputs alone."""
        output: Tensor = self.network(*given, **options)[0]
        return output
