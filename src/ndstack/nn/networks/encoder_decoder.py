"""A transformer with an encoder and a decoder, whose layers have scaled dot-product or stack attention.

Every sublayer is wrapped as in `ndstack.nn.networks.transformer`. A layer of the encoder has self-attention
and a feedforward sublayer. A layer of the decoder has, between these two, attention to the outputs of the
encoder. Scaled dot-product attention sees all positions in the encoder and those before in the decoder. Stack
attention reads from left to right in both; in the encoder, a second stack may read from right to left.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ndstack.errors import NdstackError, check_flag, check_size
from ndstack.nn.networks.attention import AttentionState, DotProductAttention, StackAttention, check_dropout
from ndstack.nn.networks.backbone import check_input
from ndstack.nn.networks.dropout import Dropout
from ndstack.nn.networks.padding import Lengths, check_lengths, padding_mask, reverse, without
from ndstack.nn.networks.positions import sinusoidal_positions
from ndstack.nn.networks.sequence_to_sequence import SequenceToSequence
from ndstack.nn.networks.state import NetworkState
from ndstack.nn.networks.transformer import LayerKind, TransformerLayer, check_kinds
from ndstack.settings.model import DEFAULTS
from ndstack.stacks.base import AnyStack, Stack, State

TWO_LAYERS: tuple[LayerKind, ...] = ("attention",) * 2


class FullAttention(DotProductAttention):
    """Multi-head scaled dot-product self-attention in which every position sees all positions."""

    def attend(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """Return y_1..y_n, [B, n, d_model].

        Args:
            x: [B, n, d_model].
            visible: [B, 1, 1, n], which positions may be seen; all if not given.
        """
        batch, n, _ = x.shape
        parts = self.query_key_value(x).view(batch, n, 3, self.heads, self.d_model // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=visible, dropout_p=rate)
        y: Tensor = self.output(attended.transpose(1, 2).reshape(batch, n, self.d_model))
        return y


class TwoWayStackAttention(StackAttention):
    """Stack attention from both sides, with a stack for each; a linear layer joins what both give."""

    def __init__(self, d_model: int, stack: AnyStack, *, exp_pushes: bool = False) -> None:
        super().__init__(d_model, stack, exp_pushes=exp_pushes)
        self.backwards = StackAttention(d_model, copy.deepcopy(stack), exp_pushes=exp_pushes)
        self.join = torch.nn.Linear(2 * d_model, d_model)


class CrossAttention(torch.nn.Module):
    """Multi-head scaled dot-product attention of a decoder to the outputs of an encoder.

    Args:
        d_model: the size of inputs, outputs and the encoder's outputs.
        heads: how many heads; d_model must be a multiple of it.
        dropout: the rate of dropout on the attention weights.
    """

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.d_model, self.heads, self.dropout = d_model, heads, dropout
        self.query = torch.nn.Linear(d_model, d_model)
        self.key_value = torch.nn.Linear(d_model, 2 * d_model)
        self.output = torch.nn.Linear(d_model, d_model)

    def remember(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of an encoder's outputs [B, n, d_model], each [B, heads, n, size]."""
        batch, n, _ = encoded.shape
        parts = self.key_value(encoded).view(batch, n, 2, self.heads, self.d_model // self.heads)
        keys, values = parts.permute(2, 0, 3, 1, 4)
        return keys, values

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
        """Return what is read from the encoder at each position, [B, m, d_model].

        Args:
            x: [B, m, d_model].
            keys: of `remember`.
            values: of `remember`.
            visible: [B, n], which positions of the encoder count.
        """
        batch, m, _ = x.shape
        queries = self.query(x).view(batch, m, self.heads, self.d_model // self.heads).transpose(1, 2)
        rate = self.dropout if self.training else 0.0
        mask = visible[:, None, None, :]
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=rate)
        y: Tensor = self.output(attended.transpose(1, 2).reshape(batch, m, self.d_model))
        return y


class EncoderLayer(TransformerLayer):
    """Self-attention to the whole sequence, and a feedforward sublayer."""

    def encode(self, h: Tensor, lengths: list[int] | None, padding: Tensor | None) -> Tensor:
        """Return the outputs of the layer, [B, n, d_model]; those of padding mean nothing.

        Args:
            h: [B, n, d_model].
            lengths: of the sequences, if they differ.
            padding: [B, n], which positions are padding, if any are.
        """
        h = self.dropout(self._attend(self.attention_norm(h), lengths, padding), h)
        encoded: Tensor = self.dropout(self.feedforward(self.feedforward_norm(h)), h)
        return encoded

    def _attend(self, x: Tensor, lengths: list[int] | None, padding: Tensor | None) -> Tensor:
        attention = self.attention
        if isinstance(attention, FullAttention):
            return attention.attend(x, None if padding is None else ~padding[:, None, None, :])
        assert isinstance(attention, StackAttention)
        y: Tensor = attention(x, key_padding_mask=padding)[0]
        if not isinstance(attention, TwoWayStackAttention):
            return y
        back = attention.backwards(reverse(x, lengths), key_padding_mask=padding)[0]
        joined: Tensor = attention.join(torch.cat([y, reverse(back, lengths)], dim=2))
        return joined


class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to an encoder, and a feedforward sublayer."""

    def __init__(
        self, attention: DotProductAttention | StackAttention, heads: int, feedforward: int, dropout: float
    ) -> None:
        super().__init__(attention, feedforward, dropout)
        self.cross_norm = torch.nn.LayerNorm(attention.d_model)
        self.cross = CrossAttention(attention.d_model, heads, dropout)

    def decode(
        self, h: Tensor, state: AttentionState | State, memory: tuple[Tensor, Tensor], visible: Tensor
    ) -> tuple[Tensor, AttentionState | State]:
        """Return the outputs of the layer, [B, m, d_model], and the state of its self-attention."""
        attended, state = self.attention(self.attention_norm(h), state)
        h = self.dropout(attended, h)
        h = self.dropout(self.cross(self.cross_norm(h), *memory, visible), h)
        return self.dropout(self.feedforward(self.feedforward_norm(h)), h), state


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderDecoderState(NetworkState):
    """What the decoder of an `EncoderDecoder` carries from call to call."""

    layers: tuple[AttentionState | State, ...]
    """Of each layer: a key/value cache, or the state of its stack."""

    memory: tuple[Tensor, ...]
    """The keys and values of the encoder's outputs for each layer, in turn."""

    visible: Tensor
    """[B, n], which positions of the encoder count."""

    time: int
    """How many inputs the decoder has read; the position of the next one."""


class EncoderDecoder(SequenceToSequence):
    """A transformer with an encoder and a decoder.

    Give it plain embeddings; they are scaled here, and nowhere else.

    Args:
        d_model: the size of inputs, layers and outputs.
        encoder: the kind of attention of each layer of the encoder; a stack must be in no other layer.
        decoder: the kind of self-attention of each layer of the decoder.
        heads: of each scaled dot-product attention; d_model must be a multiple of it.
        feedforward: the number of hidden units of each feedforward sublayer.
        dropout: the rate of dropout, as in `Transformer`; in training only.
        both_ways: whether every stack of the encoder has a twin that reads from right to left.
        exp_pushes: of all layers of stack attention, see there.
    """

    def __init__(
        self,
        d_model: int = DEFAULTS.d_model,
        encoder: Sequence[LayerKind] = TWO_LAYERS,
        decoder: Sequence[LayerKind] = TWO_LAYERS,
        heads: int = DEFAULTS.heads,
        feedforward: int = DEFAULTS.feedforward,
        dropout: float = DEFAULTS.dropout,
        *,
        both_ways: bool = DEFAULTS.both_ways,
        exp_pushes: bool = DEFAULTS.exp_pushes,
    ) -> None:
        super().__init__()
        d_model = check_size("d_model", d_model)
        check_kinds(encoder)
        check_kinds(decoder)
        stacks = [kind for kind in (*encoder, *decoder) if isinstance(kind, Stack)]
        if len({id(stack) for stack in stacks}) < len(stacks):
            raise NdstackError(
                "a stack is in the encoder and in the decoder, expected one of its own in each"
            )
        heads, feedforward = check_size("heads", heads), check_size("feedforward", feedforward)
        dropout, self.both_ways = check_dropout(dropout), check_flag("both_ways", both_ways)
        self.source_size = self.target_size = self.output_size = self.d_model = d_model
        self.heads, self.feedforward, self.exp_pushes = (
            heads,
            feedforward,
            check_flag("exp_pushes", exp_pushes),
        )
        stacked = TwoWayStackAttention if both_ways else StackAttention
        self.encoder = torch.nn.ModuleList(
            EncoderLayer(
                stacked(d_model, kind, exp_pushes=exp_pushes)
                if isinstance(kind, Stack)
                else FullAttention(d_model, heads, dropout=dropout),
                feedforward,
                dropout,
            )
            for kind in encoder
        )
        self.decoder = torch.nn.ModuleList(
            DecoderLayer(
                StackAttention(d_model, kind, exp_pushes=exp_pushes)
                if isinstance(kind, Stack)
                else DotProductAttention(d_model, heads, dropout=dropout),
                heads,
                feedforward,
                dropout,
            )
            for kind in decoder
        )
        self.encoder_norm, self.norm = torch.nn.LayerNorm(d_model), torch.nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
        names = ("d_model", "heads", "feedforward", "both_ways", "exp_pushes")
        kinds = {"encoder": _kinds(self._encoder()), "decoder": _kinds(self._decoder())}
        return {name: getattr(self, name) for name in names} | {"dropout": self.dropout.p} | kinds

    def encode(self, x: Tensor, lengths: Lengths | None = None) -> EncoderDecoderState:
        """Read input sequences, and return decoders that have read nothing yet."""
        check_input(x, self.d_model, None)
        batch, n, _ = x.shape
        sizes = None if lengths is None else check_lengths(lengths, batch, n)
        padding = None if sizes is None or min(sizes, default=n) == n else padding_mask(sizes, n, x.device)
        if padding is None:
            sizes = None
        else:
            x = without(padding, x)
        h = self._enter(x, 0)
        for layer in self._encoder():
            h = layer.encode(h, sizes, padding)
        encoded = self.encoder_norm(h)
        visible = torch.ones(batch, n, dtype=torch.bool, device=x.device) if padding is None else ~padding
        memory = tuple(part for layer in self._decoder() for part in layer.cross.remember(encoded))
        layers = tuple(
            layer.attention.start(batch, dtype=x.dtype, device=x.device) for layer in self._decoder()
        )
        return EncoderDecoderState(layers, memory, visible, 0)

    def decode(self, y: Tensor, state: NetworkState) -> tuple[Tensor, EncoderDecoderState]:
        """Read a part of the output sequences."""
        if not isinstance(state, EncoderDecoderState) or len(state.layers) != len(self.decoder):
            raise NdstackError(
                f"state of another network given, expected that of a decoder of {len(self.decoder)} layers"
            )
        check_input(y, self.d_model, state.batch_size)
        h = self._enter(y, state.time)
        carried = []
        for number, (layer, own) in enumerate(zip(self._decoder(), state.layers, strict=True)):
            keys, values = state.memory[2 * number : 2 * number + 2]
            h, own = layer.decode(h, own, (keys, values), state.visible)
            carried.append(own)
        new = dataclasses.replace(state, layers=tuple(carried), time=state.time + y.shape[1])
        return self.norm(h), new

    def _enter(self, x: Tensor, first: int) -> Tensor:
        """Return scaled embeddings with positions."""
        positions = sinusoidal_positions(first, x.shape[1], self.d_model, dtype=x.dtype, device=x.device)
        h: Tensor = self.dropout(math.sqrt(self.d_model) * x + positions)
        return h

    def _encoder(self) -> list[EncoderLayer]:
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    def _decoder(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]


def _kinds(layers: Sequence[TransformerLayer]) -> list[LayerKind]:
    kinds = [layer.attention for layer in layers]
    return [kind.stack if isinstance(kind, StackAttention) else "attention" for kind in kinds]
