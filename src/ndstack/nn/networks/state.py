"""What a network carries from call to call: hidden states, caches, and the states of its stacks.

A state is a frozen value: a call makes a new one and leaves the old one valid, so a state can be kept,
branched from (beam search), detached and carried into the next call (truncated BPTT, incremental decoding).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks.state import State


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkState:
    """A batch of networks after some step.

    Subclasses are frozen dataclasses. A tensor field has the batch as its first dimension; a field may also
    be another `NetworkState`, a stack's `State`, or a tuple of any of these; anything else is shared by the
    whole batch and never changed by the methods here.
    """

    @property
    def batch_size(self) -> int:
        """The number of networks held."""
        for size in _batch_sizes(self):
            return size
        raise NdstackError(f"a {type(self).__name__} that holds nothing given, expected that of a network")

    def detach(self) -> Self:
        """The same state, cut off from the gradient (truncated BPTT)."""
        return self._map(Tensor.detach, State.detach)

    def select(self, rows: Tensor | slice | Sequence[int]) -> Self:
        """The networks at the given places of the batch, repeats allowed, in the order given.

        Args:
            rows: integer indices or a mask [B], a slice, or a list of integers.
        """
        index = rows if isinstance(rows, Tensor | slice) else list(rows)
        return self._map(lambda tensor: tensor[index], lambda state: state.select(index))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The same state on another device, or with its numbers in another floating-point type."""
        return self._map(
            lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None),
            lambda state: state.to(device, dtype),
        )

    def _map(self, change: Callable[[Tensor], Tensor], change_stack: Callable[[State], State]) -> Self:
        """Apply one function to every tensor and another to the state of every stack."""

        def apply(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value)
            if isinstance(value, State):
                return change_stack(value)
            if isinstance(value, NetworkState):
                return value._map(change, change_stack)
            if isinstance(value, tuple):
                return tuple(apply(part) for part in value)
            return value

        names = [field.name for field in dataclasses.fields(self)]
        return dataclasses.replace(self, **{name: apply(getattr(self, name)) for name in names})


def _batch_sizes(value: Any) -> Iterator[int]:
    """The first dimensions of all tensors held."""
    if isinstance(value, Tensor):
        yield value.shape[0] if value.dim() else 0
    elif isinstance(value, State):
        yield value.batch_size
    elif isinstance(value, NetworkState):
        yield from _batch_sizes(tuple(getattr(value, field.name) for field in dataclasses.fields(value)))
    elif isinstance(value, tuple):
        for part in value:
            yield from _batch_sizes(part)
