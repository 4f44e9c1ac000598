"""`StackRNN`: what users of `torch.nn.LSTM` expect, around the network of `ndstack.nn.networks.recurrent`.

Two directions are two networks with a stack each, one from each side.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Self, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ndstack.errors import NdstackError, check_flag, refuse
from ndstack.nn.networks.backbone import check_input
from ndstack.nn.networks.padding import (
    Lengths,
    check_lengths,
    check_lengths_in_graph,
    repack,
    reverse,
    transposed,
    unpack,
)
from ndstack.nn.networks.recurrent import Recurrent, RNNState
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.tracing import traceable, untraced
from ndstack.settings.model import DEFAULTS
from ndstack.stacks.base import AnyStack
from ndstack.stacks.state import Device, Index

__all__ = ["BidirectionalState", "RNNState", "StackRNN"]


@dataclasses.dataclass(frozen=True, eq=False)
class BidirectionalState(NetworkState):
    """What a bidirectional `StackRNN` gives: the states of both directions, each after all that it read."""

    forwards: NetworkState
    """From left to right."""

    backwards: NetworkState
    """From right to left."""

    @property
    def hidden(self) -> tuple[Tensor, ...]:
        """h_t of each layer, [B, H]: forwards, backwards, layer by layer, as `torch.nn.LSTM` has them."""
        return self._both("hidden")

    @property
    def cells(self) -> tuple[Tensor, ...]:
        """c_t of each layer of an LSTM, [B, H], in the same order."""
        return self._both("cells")

    @property
    def batch_size(self) -> int:
        """The number of strings."""
        return self.forwards.batch_size

    def _select(self, index: Index) -> Self:
        return dataclasses.replace(
            self, forwards=self.forwards.select(index), backwards=self.backwards.select(index)
        )

    def _both(self, name: str) -> tuple[Tensor, ...]:
        pairs = zip(getattr(self.forwards, name), getattr(self.backwards, name), strict=True)
        return tuple(itertools.chain.from_iterable(pairs))


_INSTEAD = {
    "bias": "the layers of a StackRNN have biases; set them to 0 and freeze them",
    "proj_size": "put a torch.nn.Linear behind the network",
    "nonlinearity": 'controller="rnn" has tanh units; register a controller of your own for others',
}
"""What to do instead of arguments that `torch.nn.LSTM` or `torch.nn.RNN` has."""


def _checked(lengths: Lengths, batch: int, longest: int) -> Lengths:
    """Return the lengths of strings; as a tensor, if this is part of a graph of `torch.compile`."""
    if torch.compiler.is_dynamo_compiling() and isinstance(lengths, Tensor):
        return check_lengths_in_graph(lengths, batch, longest)
    return check_lengths(lengths, batch, longest)


class StackRNN(Recurrent):
    """A controller and a stack, called like `torch.nn.LSTM`, with `batch_first=True` unless told otherwise.

    The output is the top layer's hidden state, [B, n, hidden_size]; with `output_reading`, followed by the
    reading. Where the stack can run with its controller in one operation (one LSTM layer that reads the stack
    directly and pushes learned vectors), it does.

    Args:
        input_size: of the vectors x_t.
        hidden_size: of the hidden state.
        stack: any of `ndstack.stacks`; None for the controller alone.
        num_layers: of the controller.
        controller: "lstm", "gru", "rnn" (tanh), or the name of a registered controller.
        push_hidden: push the top hidden state itself ("Sup. h"); the stack's vectors are of `hidden_size`.
        reading_layers: how many layers of `hidden_size` tanh units stand between reading and controller.
        output_reading: whether the output is h_t and r_t side by side, so that it does not lag a step behind
            the stack.
        normalize_reading: whether a nondeterministic stack reads probabilities; if not, the weights of runs
            (`ndstack.nn.networks.unnormalized`).
        dropout: the rate of dropout on what each layer but the last one gives to the next, in training.
        bidirectional: whether a second network, `backwards`, with a stack of its own, reads from right to
            left; outputs of both are put side by side.
        batch_first: whether inputs and outputs are [B, n, size]; if not, [n, B, size].
        device: the device of the parameters; torch's default if not given.
        dtype: the dtype of the parameters; torch's default if not given.
        unsupported: other arguments of `torch.nn.LSTM`, which cause an error that says what to do instead.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        stack: AnyStack | None,
        num_layers: int = 1,
        controller: str = DEFAULTS.controller,
        *,
        push_hidden: bool = False,
        reading_layers: int = DEFAULTS.reading_layers,
        output_reading: bool = DEFAULTS.output_reading,
        normalize_reading: bool = DEFAULTS.normalize_reading,
        dropout: float = 0.0,
        bidirectional: bool = False,
        batch_first: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **unsupported: object,
    ) -> None:
        refuse(unsupported, StackRNN, _INSTEAD)
        bidirectional = check_flag("bidirectional", bidirectional)
        super().__init__(
            input_size,
            hidden_size,
            stack,
            num_layers,
            controller,
            push_hidden=push_hidden,
            reading_layers=reading_layers,
            output_reading=output_reading,
            normalize_reading=normalize_reading,
            dropout=dropout,
        )
        self.bidirectional, self.batch_first = bidirectional, check_flag("batch_first", batch_first)
        self.backwards: Recurrent | None = None
        if bidirectional:
            self.backwards = Recurrent(
                input_size,
                hidden_size,
                copy.deepcopy(stack),
                num_layers,
                controller,
                push_hidden=push_hidden,
                reading_layers=reading_layers,
                output_reading=output_reading,
                normalize_reading=normalize_reading,
                dropout=dropout,
            )
            self.output_size *= 2
        self.to(device=device, dtype=dtype)

    def flatten_parameters(self) -> None:
        """Do nothing; code that was written for `torch.nn.LSTM` may call it."""

    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
        given = super().arguments()
        given |= {"bidirectional": True} if self.bidirectional else {}
        return given | ({} if self.batch_first else {"batch_first": False})

    def start(self, batch_size: int, dtype: torch.dtype | None = None, device: Device = None) -> NetworkState:
        """Return hidden states and memory cells of zeros, and fresh stacks."""
        first = super().start(batch_size, dtype, device)
        if self.backwards is None:
            return first
        return BidirectionalState(first, self.backwards.start(batch_size, dtype, device))

    @overload
    def forward(
        self, x: Tensor, state: NetworkState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, NetworkState]: ...
    @overload
    def forward(
        self, x: PackedSequence, state: NetworkState | None = None
    ) -> tuple[PackedSequence, NetworkState]: ...
    def forward(
        self,
        x: Tensor | PackedSequence,
        state: NetworkState | None = None,
        lengths: Lengths | None = None,
    ) -> tuple[Tensor | PackedSequence, NetworkState]:
        """Read a sequence of any length, 0 included, or continue one.

        Args:
            x: [B, n, input_size]; or a packed batch, whose outputs are packed in the same way.
            state: the state to continue from; zeros and fresh stacks if not given.
            lengths: how many positions of each string count, if they are filled up on the right; all if not
                given.

        Returns:
            The outputs, [B, n, output_size], and the last state: an `RNNState`; or a `RaggedState` after
            strings of different lengths, and a `BidirectionalState` if there are two directions. With
            lengths, outputs after the end of each string are zeros, and its state is that at its end.
        """
        if (
            torch.compiler.is_dynamo_compiling()
            and (lengths is not None or (self.stack is not None and not traceable(state)))
            and not self._enters_graph(self._as_read(x), state, lengths)
        ):  # at once, so that it is one break in the graph
            return untraced()(self.forward, x, state, lengths)
        read = super().forward if self.backwards is None else self._both_directions
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise NdstackError(
                    "a packed batch and lengths given, but a packed batch has lengths of its own"
                )
            padded, sizes = unpack(x)
            output, state = read(padded, state, sizes)
            return repack(output, sizes, x), state
        if self.batch_first:
            return read(x, state, lengths)
        output, state = read(transposed(x), state, lengths)
        return output.transpose(0, 1), state

    def _as_read(self, x: object) -> object:
        """Return what may be an input as [B, n, input_size]."""
        if not self.batch_first and isinstance(x, Tensor) and x.dim() == 3:
            return x.transpose(0, 1)
        return x

    def _both_directions(
        self, x: Tensor, state: NetworkState | None, lengths: Lengths | None
    ) -> tuple[Tensor, NetworkState]:
        """Read [B, n, input_size] in two directions."""
        assert self.backwards is not None
        if state is not None and not isinstance(state, BidirectionalState):
            raise NdstackError(
                f"a {type(state).__name__} given, expected a BidirectionalState, as start() gives it"
            )
        check_input(x, self.input_size, None if state is None else state.batch_size)
        sizes = None if lengths is None else _checked(lengths, *x.shape[:2])
        first, second = (None, None) if state is None else (state.forwards, state.backwards)
        output, first = super().forward(x, first, sizes)
        back, second = self.backwards(reverse(x, sizes), second, sizes)
        return torch.cat([output, reverse(back, sizes)], dim=2), BidirectionalState(first, second)
