"""The state of a network as a cache of `generate`: stacks and hidden states in place of keys and values."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Cache

from ndstack.errors import NdstackError
from ndstack.nn import NetworkState


class NdstackCache(Cache):
    """What a model carries from call to call.

    Attributes:
        state: the state of the network.
        unread: [B], which strings have had nothing but padding so far.
        tokens: how many tokens there have been, padding included.
    """

    def __init__(self, state: NetworkState, unread: Tensor, tokens: int) -> None:
        super().__init__(layers=[])
        self.state, self.unread, self.tokens = state, unread, tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens so far."""
        return self.tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these strings of the batch, in this order (beam search)."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these strings of the batch."""
        self.state, self.unread = self.state.select(indices), self.unread[indices]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every string of the batch."""
        rows = torch.arange(len(self.unread), device=self.unread.device)
        self.batch_select_indices(rows.repeat_interleave(repeats))

    def crop(self, max_length: int) -> None:
        """Refuse to forget the last tokens, since a state does not know what was before it."""
        raise NdstackError(
            "the state of a stack cannot be cropped; use generate() without an assistant or prompt lookup"
        )
