"""What a stack, or a network, carries from step to step.

A state is a frozen value: stepping makes a new one and leaves the old one valid, so a state can be kept,
branched from (beam search), detached and carried into the next call (truncated BPTT, incremental decoding).
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError

Device = torch.device | str | None
"""Where tensors are; None leaves it to torch, or to whoever has parameters."""

Index = Tensor | slice | list[int]
"""Rows of a batch, as tensors are indexed with them."""


def _checked_rows(rows: object, count: int) -> Index:
    """Return the index of some rows of a batch, or raise an `NdstackError`."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, Tensor):
        whole = rows.dim() == 1 and not rows.is_floating_point() and not rows.is_complex()
        if whole and (rows.dtype != torch.bool or len(rows) == count):
            # to look at numbers that are elsewhere would wait for them
            seen = not rows.is_cpu or rows.dtype == torch.bool or torch.compiler.is_compiling()
            if seen or all(-count <= row < count for row in rows.tolist()):
                return rows
    elif isinstance(rows, Iterable):
        index = list(rows)
        if all(isinstance(row, bool) for row in index) and len(index) == count > 0:
            return torch.tensor(index)
        if all(hasattr(row, "__index__") and not isinstance(row, bool) for row in index):
            index = [row.__index__() for row in index]
            if all(-count <= row < count for row in index):
                return index
    shown = " ".join(repr(rows).split())[:80]
    raise NdstackError(
        f"rows {shown} given for a batch of {count}, expected whole numbers below {count}, a mask of that "
        "length, or a slice"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """A batch of states.

    Subclasses are frozen dataclasses. A tensor field has the batch as its first dimension. A field may also
    be another such value, or a tuple of tensors and such values. Everything else is shared by the whole batch
    and never changed by the methods here.
    """

    keeps_dtype: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields that `to` moves to another device but never to another dtype."""

    def detach(self) -> Self:
        """Return the same state, cut off from the gradient (truncated BPTT)."""
        return self._map(Tensor.detach)

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """The number of states held."""

    def select(self, rows: Tensor | slice | Sequence[int]) -> Self:
        """Return what is at the given places of the batch, repeats allowed, in the order given.

        Args:
            rows: integer indices or a mask [B], a slice, or a list of integers.
        """
        return self._select(_checked_rows(rows, self.batch_size))

    def _select(self, index: Index) -> Self:
        """`select`, with rows that exist."""
        return self._map(lambda tensor: tensor[index])

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Self:
        """Return the same state on another device, or with its numbers in another floating-point type."""
        moved = self if device is None else self._map(lambda tensor: tensor.to(device))
        if dtype is None:
            return moved
        return moved._map(
            lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, spared=True
        )

    def clone(self) -> Self:
        """Return the same state, every tensor of which has memory of its own."""
        return self._map(lambda tensor: tensor.clone(memory_format=torch.contiguous_format))

    def copy_(self, other: Self) -> Self:
        """Copy the numbers of another state of the same shapes into the memory of this one.

        For CUDA graphs, which read and write the same memory whenever they are replayed; this state should be
        a `clone`, so that no two of its tensors share memory.
        """
        sources, targets = other._tensors(), self._tensors()
        if [tensor.shape for tensor in sources] != [tensor.shape for tensor in targets]:
            raise NdstackError("a state of other shapes given to copy; use one of fixed capacity")
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        return self

    def _tensors(self) -> list[Tensor]:
        """All tensors, always in the same order."""
        found: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        self._map(note)
        return found

    def _map(self, change: Callable[[Tensor], Tensor], *, spared: bool = False) -> Self:
        """Apply a function to every tensor, or, if `spared`, to all but those of `keeps_dtype`."""

        def apply(value: object) -> object:
            if isinstance(value, Tensor):
                return change(value)
            if isinstance(value, Carried):
                return value._map(change, spared=spared)
            if isinstance(value, tuple):
                return tuple(apply(part) for part in value)
            return value

        names = [field.name for field in dataclasses.fields(self)]
        kept = self.keeps_dtype if spared else frozenset()
        new = {name: apply(getattr(self, name)) for name in names if name not in kept}
        return dataclasses.replace(self, **new)


@dataclasses.dataclass(frozen=True, eq=False)
class State(Carried):
    """A batch of stacks after some step, and their readings; subclasses add what else a stack carries."""

    reading: Tensor
    """[B, R]: what the stack shows now; before the first step, the reading r_0."""

    @property
    def traceable(self) -> bool:
        """Whether `torch.compile` can look into steps from here."""
        return False

    @property
    def batch_size(self) -> int:
        """The number of stacks held."""
        return self.reading.shape[0]
