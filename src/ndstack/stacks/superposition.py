"""The superposition stack of Joulin and Mikolov (section 3.3.2), one or several of them.

`Superposition(10)` is the dissertation's: one stack of vectors, which is the same as 10 stacks of
scalars whose actions are synchronised. `Superposition((3, 3, 3))` is the "Sup. 3-3-3" of section
8.4: three stacks, each with actions of its own, whose readings are concatenated. With a depth of
10 it is the one used on natural language (chapter 7).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag, check_size
from ndstack.ops import superposition as operation
from ndstack.stacks.base import Stack, State
from ndstack.stacks.checks import is_like
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class SuperpositionState(State):
    """What `Superposition` carries from step to step."""

    cells: Tensor
    """[B, G, h, m]: the elements of each of G stacks, top first; m is the largest size of the G,
    smaller vectors are filled up with zeros."""


class Superposition(Stack[SuperpositionState]):
    """One superposition stack or several.

    At each step the action logits become probabilities of push, no-op and pop by a softmax, in
    this order (of each stack in turn, if there are several). A stack is empty at first and reads
    zeros; popping an empty stack leaves it empty.

    Args:
        sizes: the size of the vectors; or a sequence, one size for each of several stacks.
        depth: the greatest number of elements; a push onto a full stack drops the bottom one.
            None for no limit.
        synchronized: let several stacks share one set of actions.
    """

    push_activation = "sigmoid"

    def __init__(
        self, sizes: int | Sequence[int], depth: int | None = None, *, synchronized: bool = False
    ) -> None:
        super().__init__()
        each = sizes if isinstance(sizes, Sequence) and not isinstance(sizes, str) else (sizes,)
        self.sizes = tuple(check_size("size", one) for one in each)
        if not self.sizes:
            raise NdstackError("no sizes given, expected one for each of one or more stacks")
        self.depth = None if depth is None else check_size("depth", depth)
        self.synchronized = check_flag("synchronized", synchronized)
        self.action_size = 3 if synchronized else 3 * len(self.sizes)
        self.push_size = self.reading_size = sum(self.sizes)
        # Synchronised stacks are one stack of longer vectors.
        self._sizes = (self.push_size,) if synchronized else self.sizes
        self.even = min(self._sizes) == max(self._sizes)

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> SuperpositionState:
        """Return empty stacks, which read zeros."""
        return self._empty(check_size("batch_size", batch_size, 0), dtype, device)

    def _empty(self, batch_size: int, dtype: torch.dtype | None, device: Device) -> SuperpositionState:
        return SuperpositionState(
            torch.zeros(batch_size, self.reading_size, dtype=dtype, device=device),
            torch.empty(batch_size, len(self._sizes), 0, max(self._sizes), dtype=dtype, device=device),
        )

    @property
    def scans_in_graphs(self) -> bool:
        """Whether `torch.compile` can make a scan a part of its graph: unless a subclass changes it."""
        return type(self)._scan is Superposition._scan

    def scan_in_graph(self, actions: Tensor, pushed: Tensor | None) -> tuple[Tensor, SuperpositionState]:
        """Do what `scan` does from the start, where `torch.compile` traces it."""
        return self._scan(self._empty(actions.shape[0], actions.dtype, actions.device), actions, pushed)

    @property
    def idle(self) -> tuple[float, ...]:
        """Neither push nor pop."""
        return (-math.inf, 0.0, -math.inf) * (self.action_size // 3)

    def _fits(self, state: object) -> bool:
        if not isinstance(state, SuperpositionState):
            return False
        shape = (state.batch_size, len(self._sizes), None, max(self._sizes))
        if not is_like(state.cells, state.reading, *shape):
            return False
        return self.depth is None or bool(state.cells.shape[2] <= self.depth)

    def _step(self, state: SuperpositionState, actions: Tensor, pushed: Tensor | None) -> SuperpositionState:
        assert pushed is not None
        if not self.even:
            pushed = self._split(pushed).flatten(1)
        reading, cells = operation.step(state.cells, actions, pushed, self.depth)
        if not self.even:
            reading = self._join(reading.view(-1, len(self._sizes), max(self._sizes)))
        return SuperpositionState(reading, cells)

    def _drive(
        self, state: SuperpositionState, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> SuperpositionState:
        if not self.even:
            return super()._drive(state, hidden, weight, bias)
        return SuperpositionState(*operation.step_from_hidden(state.cells, hidden, weight, bias, self.depth))

    def _scan(
        self, state: SuperpositionState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, SuperpositionState]:
        assert pushed is not None
        (batch, stacks, height, size), n = state.cells.shape, actions.shape[1]
        if n == 0:
            return pushed, state
        rows = batch * stacks
        readings, cells = operation.scan(
            state.cells.reshape(rows, height, size),
            actions.reshape(batch, n, stacks, 3).transpose(1, 2).reshape(rows, n, 3),
            self._split(pushed).transpose(1, 2).reshape(rows, n, size),
            self.depth,
            logits=True,
        )
        joined = self._join(readings.view(batch, stacks, n, size).transpose(1, 2))
        cells = cells.view(batch, stacks, cells.shape[1], size)
        return joined, SuperpositionState(joined[:, -1], cells)

    def _split(self, pushed: Tensor) -> Tensor:
        """Turn [..., sum of sizes] into [..., G, largest size], filled up with zeros."""
        size = max(self._sizes)
        if self.even:
            return pushed.reshape(*pushed.shape[:-1], len(self._sizes), size)
        parts = [
            torch.nn.functional.pad(pushed[..., end - own : end], (0, size - own))
            for own, end in zip(self._sizes, itertools.accumulate(self._sizes), strict=True)
        ]
        return torch.stack(parts, dim=-2)

    def _join(self, readings: Tensor) -> Tensor:
        """Turn [..., G, largest size] into [..., sum of sizes]."""
        if self.even:
            return readings.reshape(*readings.shape[:-2], self.push_size)
        parts = [readings[..., stack, :own] for stack, own in enumerate(self._sizes)]
        return torch.cat(parts, dim=-1)

    def extra_repr(self) -> str:
        """Return the arguments, for printing."""
        return f"{self.sizes}, depth={self.depth}, synchronized={self.synchronized}"
