"""A recurrent encoder and decoder: the last state of the encoder, stack included, starts the decoder.

With attention, the decoder also reads a weighted mean of the encoder's outputs e_1, ..., e_n, after its step
(Luong et al., 2015):

    a_t = softmax_i(h_t^T W e_i),   c_t = Σ_i a_t[i] e_i,   output_t = tanh(V [h_t; c_t]).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag
from ndstack.nn.networks.backbone import check_input
from ndstack.nn.networks.padding import Lengths, check_lengths, padding_mask
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.networks.sequence_to_sequence import SequenceToSequence
from ndstack.nn.networks.state import NetworkState
from ndstack.settings.model import DEFAULTS
from ndstack.stacks.base import AnyStack
from ndstack.stacks.state import Index


@dataclasses.dataclass(frozen=True, eq=False)
class RecurrentDecoderState(NetworkState):
    """What the decoder of a `RecurrentEncoderDecoder` carries from call to call."""

    network: NetworkState
    """The state of the recurrent network."""

    encoded: Tensor | None
    """[B, n, H], the outputs of the encoder, if there is attention."""

    visible: Tensor | None
    """[B, n], which of them count."""

    def _select(self, index: Index) -> Self:
        encoded = None if self.encoded is None else self.encoded[index]
        visible = None if self.visible is None else self.visible[index]
        return dataclasses.replace(self, network=self.network.select(index), encoded=encoded, visible=visible)


class RecurrentEncoderDecoder(SequenceToSequence):
    """Two recurrent networks with stacks of the same kind.

    Args:
        source_size: of the vectors that the encoder reads.
        target_size: of the vectors that the decoder reads.
        hidden_size: of the hidden states of both.
        stack: any of `ndstack.stacks`, for the encoder; the decoder has one with the same arguments, which
            starts as the encoder's ends, its bottom included. None for the controllers alone.
        num_layers: of both controllers.
        controller: as in `StackRNN`.
        attention: whether the decoder attends to the outputs of the encoder.
        push_hidden: as in `StackRNN`; so are all arguments that follow.
        reading_layers: see there.
        output_reading: see there.
        normalize_reading: see there.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        hidden_size: int,
        stack: AnyStack | None,
        num_layers: int = 1,
        controller: str = DEFAULTS.controller,
        *,
        attention: bool = DEFAULTS.attention,
        push_hidden: bool = False,
        reading_layers: int = DEFAULTS.reading_layers,
        output_reading: bool = DEFAULTS.output_reading,
        normalize_reading: bool = DEFAULTS.normalize_reading,
    ) -> None:
        super().__init__()

        def network(size: int, own: AnyStack | None) -> StackRNN:
            return StackRNN(
                size,
                hidden_size,
                own,
                num_layers,
                controller,
                push_hidden=push_hidden,
                reading_layers=reading_layers,
                output_reading=output_reading,
                normalize_reading=normalize_reading,
            )

        self.encoder, self.decoder = network(source_size, stack), network(target_size, copy.deepcopy(stack))
        self.source_size, self.target_size = self.encoder.input_size, self.decoder.input_size
        self.attention, size = check_flag("attention", attention), self.decoder.output_size
        self.output_size = size
        self.scores: torch.nn.Linear | None = None
        self.combined: torch.nn.Linear | None = None
        if attention:
            self.scores = torch.nn.Linear(size, size, bias=False)
            self.combined = torch.nn.Linear(2 * size, size)

    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
        names = {
            "hidden_size",
            "stack",
            "num_layers",
            "controller",
            "push_hidden",
            "reading_layers",
            "output_reading",
            "normalize_reading",
        }
        same = {name: value for name, value in self.encoder.arguments().items() if name in names}
        sizes = {"source_size": self.source_size, "target_size": self.target_size}
        return sizes | same | {"attention": self.attention}

    def encode(self, x: Tensor, lengths: Lengths | None = None) -> RecurrentDecoderState:
        """Read input sequences, and return decoders that have read nothing yet."""
        check_input(x, self.source_size, None)
        batch, n, _ = x.shape
        sizes = None if lengths is None else check_lengths(lengths, batch, n)
        encoded, state = self.encoder(x, None, sizes)
        if not self.attention:
            return RecurrentDecoderState(state, None, None)
        visible = ~padding_mask([n] * batch if sizes is None else sizes, n, x.device)
        return RecurrentDecoderState(state, encoded, visible)

    def decode(self, y: Tensor, state: NetworkState) -> tuple[Tensor, RecurrentDecoderState]:
        """Read a part of the output sequences."""
        if not isinstance(state, RecurrentDecoderState) or (state.encoded is None) == self.attention:
            raise NdstackError("state of another network given, expected that of this encoder and decoder")
        hidden, network = self.decoder(y, state.network)
        state = dataclasses.replace(state, network=network)
        if self.scores is None or self.combined is None or state.encoded is None or state.visible is None:
            return hidden, state
        scores = self.scores(hidden) @ state.encoded.transpose(1, 2)
        ignored = ~state.visible[:, None, :]
        empty = ignored.all(2, keepdim=True)  # a softmax of nothing would be nan
        weights = scores.masked_fill(ignored & ~empty, -torch.inf).softmax(dim=2).masked_fill(ignored, 0.0)
        output = torch.tanh(self.combined(torch.cat([hidden, weights @ state.encoded], dim=2)))
        return output, state
