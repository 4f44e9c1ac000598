"""What a transducer is built around: an encoder that reads a sequence, a decoder that writes another."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ndstack.nn.networks.padding import Lengths
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.tracing import Recordable


class SequenceToSequence(Recordable, torch.nn.Module, ABC):
    """An encoder and a causal decoder.

    Called on chunks of a sequence with the state carried along, the decoder gives the same numbers as in one
    call; a chunk of length 1 is one step of incremental decoding.

    Attributes:
        source_size: how many numbers the encoder reads at each position.
        target_size: how many numbers the decoder reads at each position.
        output_size: how many numbers the decoder gives at each position.
    """

    source_size: int
    target_size: int
    output_size: int

    @abstractmethod
    def encode(self, x: Tensor, lengths: Lengths | None = None) -> NetworkState:
        """Read input sequences, and return decoders that have read nothing yet.

        Args:
            x: [B, n, source_size], filled up on the right; n is at least 1.
            lengths: how many positions of each sequence count, at least 1; all if not given.
        """

    @abstractmethod
    def decode(self, y: Tensor, state: NetworkState) -> tuple[Tensor, NetworkState]:
        """Read a part of the output sequences.

        Args:
            y: [B, m, target_size].
            state: that of `encode`, or of the part before.

        Returns:
            The outputs, [B, m, output_size], and the state afterwards.
        """

    @abstractmethod
    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
