"""All kinds of stacks without parameters, and what tests of them need."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.stacks import Several, Stack, State, Stratification, Superposition

STACKS: dict[str, Stack[Any]] = {
    "superposition": Superposition(4),
    "superposition of depth 2": Superposition(4, depth=2),
    "superpositions 3-3-3": Superposition((3, 3, 3)),
    "superpositions 1-4-2 of depth 3": Superposition((1, 4, 2), depth=3),
    "synchronized superpositions": Superposition((1, 2), synchronized=True),
    "stratification": Stratification(4),
    "several": Several(Superposition(2), Several(Superposition((1, 2), depth=2))),
}

every_stack = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS.keys())


def sequence(stack: Stack[Any], batch: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    actions = torch.randn(batch, n, stack.action_size, dtype=torch.float64, generator=generator)
    pushed = torch.randn(batch, n, stack.push_size, dtype=torch.float64, generator=generator)
    return actions.requires_grad_(), pushed.requires_grad_()


def tensors(state: State) -> list[Tensor]:
    """All that a state holds."""
    found = []
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            found += tensors(part) if isinstance(part, State) else [part]
    return found


def assert_equal(one: State, other: State) -> None:
    for a, b in zip(tensors(one), tensors(other), strict=True):
        assert torch.equal(a, b)
