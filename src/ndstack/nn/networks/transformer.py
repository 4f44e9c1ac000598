"""The transformer of chapter 10, whose attention sublayers are listed by kind.

Every sublayer, of attention or feedforward, is wrapped in the same way (pre-norm):

    h'_t = h_t + Dropout(Sublayer_t(LayerNorm(h_t)))

and the output of the last layer is normalised once more. The inputs are embeddings; they are scaled
here, by the square root of d_model, and get sinusoidal positions:

    h_t = Dropout(sqrt(d_model) x_t + PE(t)),      t = 0 for BOS.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag, check_size
from ndstack.nn.networks.attention import (
    Attention,
    AttentionState,
    DotProductAttention,
    StackAttention,
    check_dropout,
)
from ndstack.nn.networks.backbone import Backbone, check_dtype, check_input
from ndstack.nn.networks.dropout import Dropout
from ndstack.nn.networks.padding import Lengths
from ndstack.nn.networks.positions import sinusoidal_positions
from ndstack.nn.networks.ragged import RaggedState
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.tracing import refuse_recording, untraced
from ndstack.settings.model import DEFAULTS
from ndstack.stacks.base import AnyStack, Stack, State
from ndstack.stacks.state import Device

LayerKind = Literal["attention"] | AnyStack
"""`"attention"` for scaled dot-product attention; a stack for stack attention with that stack."""
LAYERS: tuple[LayerKind, ...] = ("attention",) * 5
"""The layers of chapter 10's baseline."""


class TransformerLayer(torch.nn.Module):
    """An attention sublayer and a feedforward sublayer: two affine layers with a ReLU between them.

    Args:
        attention: the sublayer function of the former.
        feedforward: how many hidden units the latter has.
        dropout: the rate of dropout on the hidden units and on what both sublayers give.
    """

    def __init__(
        self, attention: Attention[AttentionState] | Attention[State], feedforward: int, dropout: float
    ) -> None:
        super().__init__()
        d_model = attention.d_model
        dropout, feedforward = check_dropout(dropout), check_size("feedforward", feedforward)
        self.feedforward_size = feedforward
        self.attention_norm = torch.nn.LayerNorm(d_model)
        self.attention = attention
        self.feedforward_norm = torch.nn.LayerNorm(d_model)
        self.feedforward = torch.nn.Sequential(
            torch.nn.Linear(d_model, feedforward),
            torch.nn.ReLU(),
            Dropout(dropout),
            torch.nn.Linear(feedforward, d_model),
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, h: Tensor, state: AttentionState | State | None = None
    ) -> tuple[Tensor, AttentionState | State]:
        """Return the outputs [B, n, d_model] of the layer for its inputs, and the state of its attention.

        Args:
            h: [B, n, d_model].
            state: of the attention, after the inputs before these; a fresh one if not given.
        """
        if torch.compiler.is_dynamo_compiling() and isinstance(self.attention, StackAttention):
            return untraced()(self.forward, h, state)
        attended, state = self.attention(self.attention_norm(h), state)
        h = self.dropout(attended, h)
        h = self.dropout(self.feedforward(self.feedforward_norm(h)), h)
        return h, state


@dataclasses.dataclass(frozen=True, eq=False)
class TransformerState(NetworkState):
    """What `Transformer` carries from call to call: caches and stacks."""

    layers: tuple[AttentionState | State, ...]
    """Of each layer: a key/value cache, or the state of its stack."""

    time: int
    """How many inputs have been read; the position of the next one."""


class Transformer(Backbone):
    """A causal transformer of layers of scaled dot-product attention and of stack attention.

    `Transformer()` is chapter 10's baseline. `Transformer(32, ["attention", "attention",
    Superposition(32), "attention", "attention"])` is its Trans. + Sup., and with `Nondeterministic(3,
    3, 5)` in the middle, Trans. + VRNS.

    Give it plain embeddings, BOS first: `input_scale` is applied to them here, and nowhere else.

    Attributes:
        input_scale: what the inputs are multiplied with before positions are added.

    Args:
        d_model: the size of inputs, layers and outputs.
        layers: the kind of attention of each layer, from the input to the output; a stack must be
            in no other layer.
        heads: of each layer of scaled dot-product attention; d_model must be a multiple of it.
        feedforward: the number of hidden units of each feedforward sublayer.
        dropout: the rate of dropout on embeddings, attention weights, hidden units of feedforward
            sublayers and what sublayers give; in training only.
        exp_pushes: of all layers of stack attention, see there.
    """

    needs_bos: ClassVar[bool] = True

    def __init__(
        self,
        d_model: int = DEFAULTS.d_model,
        layers: Sequence[LayerKind] = LAYERS,
        heads: int = DEFAULTS.heads,
        feedforward: int = DEFAULTS.feedforward,
        dropout: float = DEFAULTS.dropout,
        *,
        exp_pushes: bool = DEFAULTS.exp_pushes,
    ) -> None:
        super().__init__()
        d_model = check_size("d_model", d_model)
        check_kinds(layers)
        dropout, self.exp_pushes = check_dropout(dropout), check_flag("exp_pushes", exp_pushes)
        heads, feedforward = check_size("heads", heads), check_size("feedforward", feedforward)
        self.input_size = self.output_size = self.d_model = d_model
        self.input_scale = math.sqrt(d_model)
        self.layers = torch.nn.ModuleList(
            TransformerLayer(
                StackAttention(d_model, kind, exp_pushes=exp_pushes)
                if isinstance(kind, Stack)
                else DotProductAttention(d_model, heads, dropout=dropout),
                feedforward,
                dropout,
            )
            for kind in layers
        )
        self._has_stack = any(isinstance(kind, Stack) for kind in layers)
        self.norm = torch.nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
        layers = self._all()
        kinds = [layer.attention for layer in layers]
        heads = [kind.heads for kind in kinds if isinstance(kind, DotProductAttention)]
        return {
            "d_model": self.d_model,
            "layers": [kind.stack if isinstance(kind, StackAttention) else "attention" for kind in kinds],
            "heads": heads[0] if heads else 1,
            "feedforward": layers[0].feedforward_size,
            "dropout": self.dropout.p,
            "exp_pushes": self.exp_pushes,
        }

    def start(
        self, batch_size: int, dtype: torch.dtype | None = None, device: Device = None
    ) -> TransformerState:
        """Return empty caches and fresh stacks; what is not given is that of the parameters."""
        parts = (layer.attention for layer in self._all())
        return TransformerState(
            tuple(part.start(batch_size, dtype=dtype, device=device) for part in parts), time=0
        )

    def forward(
        self, x: Tensor, state: NetworkState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, NetworkState]:
        """Read a sequence, or continue one.

        Args:
            x: [B, n, d_model], embeddings, not scaled.
            state: the state to continue from; a fresh start if not given.
            lengths: how many positions of each string count, if they are filled up on the right; all if not
                given.

        Returns:
            The outputs, [B, n, d_model], normalised, and the last state; with lengths, zeros after the end of
            each string, and the state at its end.
        """
        if torch.compiler.is_dynamo_compiling() and x.device.type == "cpu" and self._has_stack:
            # At once, since on a CPU the graphs of the other layers take longer than the layers as they are.
            return untraced()(self.forward, x, state, lengths)
        if lengths is not None or isinstance(state, RaggedState):
            return self.read_padded(x, state, lengths)
        output, after, _ = self._run(x, state)
        return output, after

    def _run(
        self, x: Tensor, state: NetworkState | None
    ) -> tuple[Tensor, TransformerState, list[tuple[Tensor, AttentionState | State]]]:
        """Return outputs, the last state, and what each layer read and from which state."""
        if state is not None and (
            not isinstance(state, TransformerState) or len(state.layers) != len(self.layers)
        ):
            raise NdstackError(
                f"state of another network given, expected that of a transformer of {len(self.layers)} layers"
            )
        check_input(x, self.d_model, None if state is None else state.batch_size)
        check_dtype(x, self)
        refuse_recording()
        if state is None:
            state = self.start(x.shape[0], x.dtype, x.device)
        n = x.shape[1]
        positions = sinusoidal_positions(state.time, n, self.d_model, dtype=x.dtype, device=x.device)
        h = self.dropout(self.input_scale * x + positions)
        carried, read = [], []
        for layer, own in zip(self._all(), state.layers, strict=True):
            read.append((h, own))
            h, own = layer(h, own)
            carried.append(own)
        return self.norm(h), TransformerState(tuple(carried), state.time + n), read

    def _read_ragged(
        self, x: Tensor, state: NetworkState | None, lengths: list[int]
    ) -> tuple[Tensor, NetworkState]:
        """Of a cache, each string keeps its beginning; stacks make their steps again, with what they read.

        So dropout, if any, is the same for outputs and states.
        """
        output, after, read = self._run(x, state)
        past = after.time - x.shape[1]

        def make(rows: list[int], length: int) -> NetworkState:
            states: list[AttentionState | State] = []
            for layer, cache, (h, own) in zip(self._all(), after.layers, read, strict=True):
                if isinstance(cache, AttentionState):
                    states.append(cache.select(rows).until(past + length))
                else:
                    given = layer.attention_norm(h[rows, :length])
                    states.append(layer.attention(given, own.select(rows))[1])
            return TransformerState(tuple(states), past + length)

        return output, RaggedState.later(lengths, make, self)

    def _all(self) -> list[TransformerLayer]:
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]


def check_kinds(layers: object) -> None:
    """Raise an error in one line unless every layer has a kind and every stack has one layer."""
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise NdstackError(f"layers {layers!r} given, expected a list of at least one kind of layer")
    stacks: set[int] = set()
    for number, kind in enumerate(layers, start=1):
        if isinstance(kind, Stack):
            if id(kind) in stacks:
                raise NdstackError(
                    f"the stack of layer {number} is in an earlier layer too, expected one of its own; "
                    "make another with the same arguments"
                )
            stacks.add(id(kind))
        elif kind != "attention":
            raise NdstackError(
                f'layer {number} is {kind!r}, expected "attention" or a Stack of ndstack.stacks'
            )
