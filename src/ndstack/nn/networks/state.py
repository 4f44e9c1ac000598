"""What a network carries from call to call: hidden states, caches, and the states of its stacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks.state import Carried, State


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkState(Carried):
    """A batch of networks after some step; subclasses are frozen dataclasses (see `Carried`)."""

    @property
    def batch_size(self) -> int:
        """The number of networks held."""
        for size in _batch_sizes(_fields(self)):
            return size
        raise NdstackError(f"a {type(self).__name__} that holds nothing given, expected that of a network")


def _fields(state: NetworkState) -> tuple[object, ...]:
    return tuple(getattr(state, field.name) for field in dataclasses.fields(state))


def _batch_sizes(value: object) -> Iterator[int]:
    """Yield the first dimensions of all tensors held."""
    if isinstance(value, Tensor):
        yield value.shape[0] if value.dim() else 0
    elif isinstance(value, State):
        yield value.batch_size
    elif isinstance(value, NetworkState):
        own = type(value).batch_size is not NetworkState.batch_size
        yield from [value.batch_size] if own else _batch_sizes(_fields(value))
    elif isinstance(value, tuple):
        for part in value:
            yield from _batch_sizes(part)
