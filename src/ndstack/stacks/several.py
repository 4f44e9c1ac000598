"""Several stacks, of any kinds, driven by one owner as if they were one (cf. section 8.4.3).

Each has actions and pushed vectors of its own; the readings are concatenated. Superposition stacks
alone are better put into one `Superposition((3, 3, 3))`, which is faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks.base import AnyStack, Stack, State
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class SeveralState(State):
    """What `Several` carries from step to step."""

    states: tuple[State, ...]
    """Of each stack."""


class Several(Stack[SeveralState]):
    """Several stacks side by side.

    Action logits, pushed vectors and readings are those of the first stack, then those of the
    second, and so on.

    Args:
        stacks: any number of them. Those that hold vectors must share one `push_activation`.
    """

    def __init__(self, *stacks: AnyStack) -> None:
        super().__init__()
        given: tuple[object, ...] = stacks
        for stack in given:
            if not isinstance(stack, Stack):
                raise NdstackError(f"{stack!r} given as a stack, expected a Stack of ndstack.stacks")
        activations = {stack.push_activation for stack in stacks if stack.push_size}
        if not stacks or len(activations) > 1:
            raise NdstackError(
                f"stacks with the push activations {sorted(activations)} given, expected at least "
                "one stack and at most one push activation"
            )
        self.stacks = torch.nn.ModuleList(stacks)
        self.action_size = sum(stack.action_size for stack in stacks)
        self.push_size = sum(stack.push_size for stack in stacks)
        self.reading_size = sum(stack.reading_size for stack in stacks)
        for activation in activations:
            self.push_activation = activation

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> SeveralState:
        """Return all stacks before the first step."""
        return _join(stack.start(batch_size, dtype=dtype, device=device) for stack in self._all())

    def _fits(self, state: object) -> bool:
        if not isinstance(state, SeveralState) or not isinstance(state.states, tuple):
            return False
        if len(state.states) != len(self.stacks):
            return False
        parts = zip(self._all(), state.states, strict=True)
        return all(stack._belongs(own) and own.batch_size == state.batch_size for stack, own in parts)

    def _step(self, state: SeveralState, actions: Tensor, pushed: Tensor | None) -> SeveralState:
        parts = zip(self._all(), state.states, *self._split(actions, pushed), strict=True)
        return _join(stack._step(own, a, p) for stack, own, a, p in parts)

    def _scan(
        self, state: SeveralState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, SeveralState]:
        parts = zip(self._all(), state.states, *self._split(actions, pushed), strict=True)
        readings, states = zip(*(stack._scan(own, a, p) for stack, own, a, p in parts), strict=True)
        return torch.cat(readings, dim=-1), _join(states)

    def _all(self) -> list[AnyStack]:
        return [stack for stack in self.stacks if isinstance(stack, Stack)]

    def _split(self, actions: Tensor, pushed: Tensor | None) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return what each stack gets."""
        own_actions, own_pushed = [], []
        a = p = 0
        for stack in self._all():
            own_actions.append(actions[..., a : a + stack.action_size])
            own = None if pushed is None else pushed[..., p : p + stack.push_size]
            own_pushed.append(own if stack.push_size else None)
            a, p = a + stack.action_size, p + stack.push_size
        return own_actions, own_pushed


def _join(states: Iterable[State]) -> SeveralState:
    states = tuple(states)
    return SeveralState(torch.cat([state.reading for state in states], dim=-1), states)
