"""What a language model is built around: vectors in, vectors out, one per position, from left to right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.networks.padding import Lengths, check_lengths, padding_mask, without
from ndstack.nn.networks.ragged import RaggedState, read_groups
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.torch_internals import first_parameter
from ndstack.ops.runtime.tracing import Recordable
from ndstack.stacks.state import Device


class Backbone(Recordable, torch.nn.Module, ABC):
    """A causal network over sequences: the output at a position depends on it and those before it only.

    Called on chunks of a sequence with the state carried along, it gives the same numbers as in one call; a
    chunk of length 1 is one step of incremental decoding.

    Attributes:
        input_size: how many numbers it reads at each position.
        output_size: how many numbers it gives at each position.
        needs_bos: whether something has to be read before there is an output. If not, `initial_output` is
            what the first symbol is predicted from.
    """

    input_size: int
    output_size: int
    needs_bos: ClassVar[bool] = False

    @abstractmethod
    def start(self, batch_size: int, dtype: torch.dtype | None = None, device: Device = None) -> NetworkState:
        """Return the networks before they have read anything.

        Args:
            batch_size: how many.
            dtype: of the numbers; that of the parameters if not given.
            device: where; that of the parameters if not given.
        """

    @abstractmethod
    def forward(self, x: Tensor, state: NetworkState | None = None) -> tuple[Tensor, NetworkState]:
        """Read a sequence, or continue one.

        Args:
            x: [B, n, input_size].
            state: the state to continue from; a fresh start if not given.

        Returns:
            The outputs, [B, n, output_size], and the last state.
        """

    def read_padded(
        self, x: Tensor, state: NetworkState | None, lengths: Lengths | None
    ) -> tuple[Tensor, NetworkState]:
        """Read strings of different lengths, or continue strings after such.

        Numbers are those of the strings alone, and padding may hold anything: it counts for nothing, and the
        outputs there are zeros.

        Args:
            x: [B, n, input_size], strings filled up on the right.
            state: the state to continue from; a fresh start if not given.
            lengths: how many positions of each string count; all if not given.

        Returns:
            The outputs, [B, n, output_size], and the states at the end of each string.
        """
        check_input(x, self.input_size, None if state is None else state.batch_size)
        n = x.shape[1]
        sizes = None if lengths is None else check_lengths(lengths, x.shape[0], n)
        if isinstance(state, RaggedState):
            return read_groups(self.read_padded, x, state, sizes)
        if sizes is None:
            return self._read(x, state)
        longest = max(sizes, default=0)
        x = x[:, :longest]
        if min(sizes, default=0) == longest:
            output, state = self._read(x, state)
        else:
            padding = padding_mask(sizes, longest, x.device)
            output, state = self._read_ragged(without(padding, x), state, sizes)
            output = without(padding, output)
        return torch.nn.functional.pad(output, (0, 0, 0, n - longest)), state

    def _read(self, x: Tensor, state: NetworkState | None) -> tuple[Tensor, NetworkState]:
        """`forward` for strings of one length."""
        return self.forward(x, state)

    def _read_ragged(
        self, x: Tensor, state: NetworkState | None, lengths: list[int]
    ) -> tuple[Tensor, NetworkState]:
        """`read_padded` after the checks, for lengths that differ; outputs after the ends are arbitrary.

        Here, states are computed, once they are needed, by reading the strings of each length once more.
        """
        first = self.start(x.shape[0], x.dtype, x.device) if state is None else state
        return self._read(x, first)[0], self._read_again(x, first, lengths)

    def _read_again(
        self,
        x: Tensor,
        first: NetworkState,
        lengths: list[int],
        hidden: tuple[Tensor, ...] | None = None,
    ) -> RaggedState:
        """Return the states at the end of each string, for which it is read again if they are needed."""

        def make(rows: list[int], length: int) -> NetworkState:
            own = first.select(rows)
            return self._read(x[rows, :length], own)[1] if length else own

        return RaggedState.later(lengths, make, self, hidden)

    def initial_output(self, state: NetworkState) -> Tensor:
        """Return the output before anything has been read, [B, output_size]; `state` is that of `start`."""
        raise NdstackError(
            f"{type(self).__name__} has no output before it has read something; let it read BOS first"
        )


def check_dtype(x: Tensor, network: torch.nn.Module) -> None:
    """Raise an error in one line unless x has the dtype of the parameters, or autocast chooses it."""
    held = first_parameter(network).dtype
    if x.dtype != held and held.is_floating_point and not torch.is_autocast_enabled(x.device.type):
        raise NdstackError(
            f"input of {x.dtype} given to a network of {held}; use x.to({held}) or network.to({x.dtype})"
        )


def check_input(x: object, size: int, batch: int | None) -> None:
    """Raise an error in one line unless x is [batch, n, size]; a batch of None is any."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        what = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise NdstackError(f"{what} given as input, expected a tensor of floating-point numbers")
    if x.dim() != 3 or x.shape[2] != size or (batch is not None and x.shape[0] != batch):
        first = "batch" if batch is None else str(batch)
        hint = "" if batch is None else "; the batch is that of the state"
        raise NdstackError(f"input of shape {list(x.shape)} given, expected [{first}, length, {size}]{hint}")
