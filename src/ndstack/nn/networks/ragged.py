"""What networks carry after strings of different lengths: each its own state, at the end of its own string.

The charts and caches of a batch have one length in common, so the strings are grouped by length, and every
group has an ordinary state. Groups are computed when somebody asks for them: whoever needs the outputs alone,
or the last hidden states of a recurrent network, does not pay for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.networks.sharding import sharding
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime import in_graph
from ndstack.ops.runtime.autograd import own_precision
from ndstack.stacks.state import Index

Places = tuple[int, ...]
"""Places of strings in a batch."""

_CHANGED = (
    "the network has changed since it read these strings; use the state, or state.detach(), before the "
    "optimizer's step"
)


class Reads(Protocol):
    """A network, or something else that reads a batch of strings from a state."""

    def __call__(
        self, x: Tensor, state: NetworkState | None, lengths: list[int] | None, /
    ) -> tuple[Tensor, NetworkState]:
        """Return outputs and the new state."""


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedState(NetworkState):
    """Networks after strings of different lengths; a network continues from it as from any other state.

    `state.of(3)` is the ordinary state of the string in place 3 of the batch.
    """

    groups: tuple[NetworkState, ...]
    """The states of strings of one length, for each length."""

    places: tuple[Places, ...]
    """Which strings of the batch belong to each group."""

    hidden: tuple[Tensor, ...]
    """Of a recurrent network: h_t of each layer at the end of each string, [B, H]; otherwise empty."""

    @classmethod
    def later(
        cls,
        lengths: Sequence[int],
        make: Callable[[list[int], int], NetworkState],
        network: torch.nn.Module,
        hidden: tuple[Tensor, ...] | None = None,
    ) -> Self:
        """Return a state whose groups are made when they are needed, while the network is still the same.

        Args:
            lengths: of the strings.
            make: gives the state of some places of the batch after so many steps.
            network: what `make` computes with.
            hidden: the attribute, if it is known before the groups are.
        """
        by_length: dict[int, list[int]] = {}
        for place, length in enumerate(lengths):
            by_length.setdefault(length, []).append(place)
        state, versions, derivatives = (
            cls.__new__(cls),
            _versions(network.parameters()),
            torch.is_grad_enabled(),
        )
        autocast = _autocast()

        def groups() -> tuple[NetworkState, ...]:
            if _versions(network.parameters()) != versions:
                raise NdstackError(_CHANGED)
            with torch.set_grad_enabled(derivatives), autocast():
                return tuple(make(rows, length) for length, rows in by_length.items())

        vars(state).update(places=tuple(map(tuple, by_length.values())), _make=groups)
        if hidden is not None:
            vars(state)["hidden"] = hidden
        if sharding():  # the network has all its weights only while it is called
            vars(state)["groups"] = vars(state).pop("_make")()
        return state

    def __getattr__(self, name: str) -> object:
        if name == "groups" and "_make" in vars(self):
            vars(self)["groups"] = vars(self).pop("_make")()
        elif name == "hidden" and "places" in vars(self):
            vars(self)["hidden"] = _gathered("hidden", self.groups, self.places)
        else:
            raise AttributeError(name)
        return vars(self)[name]

    def __getstate__(self) -> dict[str, object]:
        return {"groups": self.groups, "places": self.places, "hidden": self.hidden}

    def _changed(
        self, groups: Sequence[NetworkState], places: Sequence[Places], hidden: tuple[Tensor, ...]
    ) -> Self:
        """Return another state of this kind, all of which is known."""
        state = type(self).__new__(type(self))
        vars(state).update(groups=tuple(groups), places=tuple(places), hidden=hidden)
        return state

    @property
    def batch_size(self) -> int:
        """The number of strings."""
        return sum(map(len, self.places))

    @property
    def cells(self) -> tuple[Tensor, ...]:
        """c_t of each layer of an LSTM at the end of each string, [B, H]; empty for other networks."""
        return _gathered("cells", self.groups, self.places)

    def of(self, place: int) -> NetworkState:
        """Return the ordinary state of the string in this place of the batch, a batch of one."""
        for rows, group in zip(self.places, self.groups, strict=True):
            if place in rows:
                return group.select([rows.index(place)])
        raise NdstackError(f"there is no string {place} in a batch of {self.batch_size}")

    def _select(self, rows: Index) -> Self:
        index = torch.tensor(rows, dtype=torch.long) if isinstance(rows, list) else rows
        device = index.device if isinstance(index, Tensor) else None
        chosen = torch.arange(self.batch_size, device=device)[index].tolist()
        groups, places = [], []
        for held, group in zip(self.places, self.groups, strict=True):
            kept = [new for new, old in enumerate(chosen) if old in held]
            if kept:
                groups.append(group.select([held.index(chosen[new]) for new in kept]))
                places.append(tuple(kept))
        return self._changed(groups, places, tuple(layer[index] for layer in self.hidden))

    def _map(self, change: Callable[[Tensor], Tensor], *, spared: bool = False) -> Self:
        groups = [group._map(change, spared=spared) for group in self.groups]
        return self._changed(groups, self.places, tuple(map(change, self.hidden)))


class ReadsLater(Protocol):
    """A network that can read strings once more, for their states."""

    def weights(self) -> list[Tensor] | None:
        """Return all weights that it reads with; None if it is no longer the network that it was."""

    def read_later(self, x: Tensor, lengths: list[int], hidden: tuple[Tensor, ...]) -> RaggedState:
        """Return the state after strings that begin here."""


@dataclasses.dataclass(frozen=True, eq=False)
class UnreadState(RaggedState):
    """A `RaggedState` that comes out of a graph of `torch.compile`, which knows no lengths.

    A graph hands out tensors and constants alone, so this is what is needed to make the groups: all that
    `RaggedState.later` has in a function.
    """

    groups: tuple[NetworkState, ...] = dataclasses.field(init=False)
    places: tuple[Places, ...] = dataclasses.field(init=False)
    hidden: tuple[Tensor, ...]

    network: ReadsLater
    """What has read the strings."""

    x: Tensor
    """The strings, [B, n, input_size], with zeros after their ends."""

    lengths: Tensor
    """[B]."""

    versions: Tensor
    """How often each weight of the network had been changed."""

    derivatives: bool
    """Whether derivatives were recorded."""

    def __getattr__(self, name: str) -> object:
        if name not in ("groups", "places") or "versions" not in vars(self):
            return super().__getattr__(name)
        weights = self.network.weights()
        if weights is None or _versions(weights) != self.versions.tolist():
            raise NdstackError(_CHANGED)
        with torch.set_grad_enabled(self.derivatives), own_precision():
            made = self.network.read_later(self.x, self.lengths.tolist(), self.hidden)
            vars(self).update(groups=made.groups, places=made.places)
        return vars(self)[name]

    def read(self) -> RaggedState:
        """Return the same state, with everything that is still to be made."""
        return RaggedState(self.groups, self.places, self.hidden)


in_graph.define(
    "versions(Tensor[] weights) -> Tensor",
    lambda weights: torch.tensor(_versions(weights)),
    lambda weights: torch.empty(len(weights), dtype=torch.long),
)


def versions_in_graph(weights: list[Tensor]) -> Tensor:
    """Return how often each weight has been changed, whenever the graph that this is part of runs."""
    found: Tensor = torch.ops.ndstack.versions(weights)
    return found


def _autocast() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Return what makes contexts with the autocast of now, on whatever device it is."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if not kinds:
        return own_precision
    return functools.partial(torch.autocast, kinds[0], torch.get_autocast_dtype(kinds[0]))


def _versions(weights: Iterable[Tensor]) -> list[int]:
    """Return how often each weight has been changed."""
    return [0 if one.is_inference() else one._version for one in weights]


def in_order(parts: list[Tensor], places: Sequence[Sequence[int]]) -> Tensor:
    """Return the rows of all parts as one batch; `places` says which rows of it each part has."""
    order = torch.tensor([place for rows in places for place in rows], dtype=torch.long).argsort()
    return torch.cat(parts)[order.to(parts[0].device)]


def read_groups(
    read: Reads, x: Tensor, state: RaggedState, lengths: list[int] | None
) -> tuple[Tensor, RaggedState]:
    """Continue the strings of a ragged batch, group by group.

    Args:
        read: what continues strings that have an ordinary state.
        x: [B, n, size].
        state: after what they have read so far.
        lengths: of what is read now, if not all of it counts.
    """
    if x.shape[0] != state.batch_size:
        raise NdstackError(
            f"input of shape {list(x.shape)} given, expected a batch of {state.batch_size}, that of the state"
        )
    outputs: list[Tensor] = []
    groups: list[NetworkState] = []
    places: list[Places] = []
    for rows, group in zip(state.places, state.groups, strict=True):
        own = None if lengths is None else [lengths[row] for row in rows]
        output, new = read(x[list(rows)], group, own)
        outputs.append(output)
        inner = new if isinstance(new, RaggedState) else None
        groups += [new] if inner is None else inner.groups
        places += [rows] if inner is None else [tuple(rows[one] for one in some) for some in inner.places]
    hidden = _gathered("hidden", groups, places)
    return in_order(outputs, state.places), RaggedState(tuple(groups), tuple(places), hidden)


def _gathered(name: str, groups: Sequence[NetworkState], places: Sequence[Places]) -> tuple[Tensor, ...]:
    """Return what all groups have of this name, [B, H] for each layer; empty if they have nothing."""
    each = [getattr(group, name, ()) for group in groups]
    return tuple(in_order(list(layer), places) for layer in zip(*each, strict=True))
