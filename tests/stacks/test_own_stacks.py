"""Stacks of one's own, and several stacks as one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks import Several, Stack, State, Stratification, Superposition
from tests.stacks.every import sequence


@dataclasses.dataclass(frozen=True, eq=False)
class CounterState(State):
    total: Tensor
    parts: tuple[State, ...]
    steps: int
    keeps_dtype: ClassVar[frozenset[str]] = frozenset({"total"})


class Counter(Stack[CounterState]):
    """A stack with the least that the interface asks for."""

    action_size, push_size, reading_size = 2, 0, 1

    def start(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> CounterState:
        reading = torch.zeros(batch_size, 1, dtype=dtype, device=device)
        return CounterState(reading, reading[:, 0].double(), (State(reading),), 0)

    def _step(self, state: CounterState, actions: Tensor, pushed: Tensor | None) -> CounterState:
        total = state.total + actions.sum(1)
        reading = total[:, None].to(actions.dtype)
        return CounterState(reading, total, (State(reading),), state.steps + 1)


def test_the_base_class_scans_and_drives_any_stack() -> None:
    stack = Counter()
    readings, state = stack.scan(torch.ones(2, 3, 2))
    assert readings[0, :, 0].tolist() == [2, 4, 6]
    assert state.steps == 3
    driven = stack.drive(state, torch.ones(2, 1), torch.ones(2, 1), torch.ones(2))
    assert driven.reading[0].item() == 10
    assert stack.scan(torch.ones(2, 0, 2))[0].shape == (2, 0, 1)
    with pytest.raises(NdstackError, match="takes 2 action logits and no pushed vector per step"):
        stack.scan(torch.ones(2, 3, 2), torch.ones(2, 3, 1))


def test_a_state_may_hold_states_and_numbers_that_keep_their_dtype() -> None:
    _, state = Counter().scan(torch.ones(2, 3, 2))
    half = state.to(dtype=torch.float16)
    assert half.reading.dtype == half.parts[0].reading.dtype == torch.float16
    assert half.total.dtype == torch.float64
    assert half.steps == 3
    assert state.select([1]).parts[0].reading.shape == (1, 1)


def test_several_stacks_must_agree_on_how_to_squash_what_is_pushed() -> None:
    with pytest.raises(NdstackError, match=r"\['sigmoid', 'tanh'\] given"):
        Several(Superposition(2), Stratification(2))
    with pytest.raises(NdstackError, match="at least one stack"):
        Several()
    assert Several(Counter(), Stratification(2)).push_activation == "tanh"


def test_several_stacks_read_what_each_reads() -> None:
    stacks = Stratification(2), Counter(), Stratification(3)
    together = Several(*stacks)
    actions, pushed = sequence(together, 2, 5)
    readings, _ = together(actions, pushed)
    first, _ = stacks[0](actions[..., :2], pushed[..., :2])
    second, _ = stacks[1](actions[..., 2:4])
    third, _ = stacks[2](actions[..., 4:], pushed[..., 2:])
    assert torch.equal(readings, torch.cat([first, second, third], -1))
