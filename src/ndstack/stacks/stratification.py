"""The stratification stack of Grefenstette et al. (section 3.3.1)."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ndstack.errors import check_size
from ndstack.ops import stratification as operation
from ndstack.stacks.base import Stack, State
from ndstack.stacks.checks import is_like
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class StratificationState(State):
    """What `Stratification` carries from step to step; k is the number of steps so far."""

    elements: Tensor
    """[B, k, 1+m]: the elements, bottom first; of each, its strength, then its vector."""

    @property
    def strengths(self) -> Tensor:
        """[B, k]: how much is left of each element."""
        return self.elements[:, :, 0]

    @property
    def vectors(self) -> Tensor:
        """[B, k, m]."""
        return self.elements[:, :, 1:]


class Stratification(Stack[StratificationState]):
    """A stratification stack.

    The two action logits of a step become the thickness to push and the thickness to pop by a sigmoid, in
    this order. The stack is empty at first and reads zeros; popping more than there is leaves it empty.

    Args:
        size: of the vectors.
    """

    action_size = 2
    push_activation = "tanh"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = self.push_size = self.reading_size = check_size("size", size)

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> StratificationState:
        """Return empty stacks, which read zeros."""
        return self._empty(check_size("batch_size", batch_size, 0), dtype, device)

    def _empty(self, batch_size: int, dtype: torch.dtype | None, device: Device) -> StratificationState:
        return StratificationState(
            torch.zeros(batch_size, self.push_size, dtype=dtype, device=device),
            torch.empty(batch_size, 0, 1 + self.push_size, dtype=dtype, device=device),
        )

    @property
    def scans_in_graphs(self) -> bool:
        """Whether `torch.compile` can make a scan a part of its graph: unless a subclass changes it."""
        return type(self)._scan is Stratification._scan

    def scan_in_graph(self, actions: Tensor, pushed: Tensor | None) -> tuple[Tensor, StratificationState]:
        """Do what `scan` does from the start, where `torch.compile` traces it."""
        return self._scan(self._empty(actions.shape[0], actions.dtype, actions.device), actions, pushed)

    @property
    def idle(self) -> tuple[float, ...]:
        """Push and pop nothing."""
        return -math.inf, -math.inf

    def _fits(self, state: object) -> bool:
        if not isinstance(state, StratificationState):
            return False
        return is_like(state.elements, state.reading, state.batch_size, None, 1 + self.push_size)

    def _step(
        self, state: StratificationState, actions: Tensor, pushed: Tensor | None
    ) -> StratificationState:
        assert pushed is not None
        return StratificationState(*operation.step(state.elements, actions, pushed))

    def _drive(
        self, state: StratificationState, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> StratificationState:
        return StratificationState(*operation.step_from_hidden(state.elements, hidden, weight, bias))

    def _scan(
        self, state: StratificationState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, StratificationState]:
        assert pushed is not None
        if actions.shape[1] == 0:
            return pushed, state
        vectors = torch.cat([state.vectors, pushed], dim=1)
        readings, strengths = operation.scan(state.strengths, actions, vectors, logits=True)
        elements = torch.cat([strengths[:, :, None], vectors], dim=2)
        return readings, StratificationState(readings[:, -1], elements)

    def extra_repr(self) -> str:
        """Return the argument, for printing."""
        return str(self.push_size)
