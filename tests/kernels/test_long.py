"""Scans by blocks of time steps: the same values and gradients as step by step, and the same guard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from random_automata import assert_near, gradients, random_weights
from test_precision import assert_late_winner_read, late_winner
from torch import Tensor

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.kernels import cpu_engine

NEVER = 10**9
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Scans go by blocks of these sizes, whatever their length."""

    def use(head: int, size: int, long: int = 0) -> None:
        for name, value in (("LONG", long), ("HEAD", head), ("BLOCK", size)):
            monkeypatch.setattr(cpu_engine, name, value)

    return use


@pytest.fixture
def redone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sequences of a batch that were scanned step by step after all."""
    rows: list[int] = []
    forward = cpu_engine.cpu_scan.forward

    def counted(shape: Any, past: Any, lo: int, hi: int, *rest: Any) -> None:
        rows.extend(range(lo, hi))
        forward(shape, past, lo, hi, *rest)

    monkeypatch.setattr(cpu_engine.cpu_scan, "forward", counted)
    return rows


def results(actions: Sequence[Tensor], **options: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Readings, attention, and gradients with respect to all weights."""
    given = [tensor.detach().clone().requires_grad_() for tensor in actions]
    outputs = nondeterministic(*given, return_attention=True, **options)
    assert isinstance(outputs, tuple)
    return list(outputs), gradients(list(outputs), given)


@pytest.mark.parametrize(
    "states, symbols, n, head, size",
    [
        (2, 3, 70, 4, 7),
        (3, 3, 100, 16, 30),
        (1, 1, 40, 1, 1),
        (1, 2, 66, 31, 32),
        (2, 1, 131, 2, 64),
        (4, 2, 65, 33, 5),
    ],
)
@pytest.mark.parametrize("fix", [True, False], ids=["fixed", "unfixed"])
def test_blocks_of_any_size_agree_with_single_steps(
    blocks: Any, redone: list[int], states: int, symbols: int, n: int, head: int, size: int, fix: bool
) -> None:
    actions = random_weights(2, n, states, symbols, seed=n, scale=2.0, zeros=0.2)
    blocks(head, size, long=NEVER)
    expected = results(actions, bottom_fix=fix)
    redone.clear()
    blocks(head, size)
    found = results(actions, bottom_fix=fix)
    assert not redone
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, 1e-10)


@DTYPES
def test_blocks_agree_with_the_reference(blocks: Any, dtype: torch.dtype) -> None:
    actions = [part.to(dtype) for part in random_weights(2, 48, 2, 2, seed=3, zeros=0.1)]
    expected = results([part.double() for part in actions], backend="reference")
    blocks(5, 11)
    found = results(actions)
    for actual, wanted in zip(found, expected, strict=True):
        assert_near([part.double() for part in actual], wanted, TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_extreme_weights_agree_with_single_steps(blocks: Any, scale: float, dtype: torch.dtype) -> None:
    actions = [part.to(dtype) for part in random_weights(4, 70, 2, 3, seed=5, scale=scale, zeros=0.3)]
    blocks(8, 12, long=NEVER)
    expected = results(actions)
    blocks(8, 12)
    found = results(actions)
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("rest", [3, 20, 45])
@pytest.mark.parametrize("nats", [50.0, 90.0, 120.0, 800.0])
def test_a_branch_that_falls_behind_wins_late_across_block_borders(
    blocks: Any, nats: float, rest: int, dtype: torch.dtype
) -> None:
    blocks(2, 9)
    actions = late_winner(nats, rest, dtype)
    readings = nondeterministic(*actions)
    assert isinstance(readings, Tensor)
    assert_late_winner_read(readings, actions, nats)


def test_only_sequences_that_leave_the_range_are_done_step_by_step(blocks: Any, redone: list[int]) -> None:
    push, replace, pop = (part.detach() for part in random_weights(3, 60, 2, 2, seed=8))
    replace[1, 40:] = -math.inf
    push[1, 40:] = -math.inf
    pop[1, 40:] = -math.inf
    blocks(8, 12)
    readings = nondeterministic(push, replace, pop)
    assert isinstance(readings, Tensor)
    assert redone == [1]
    assert (readings[1, 40:] == 0).all()
    assert (readings[[0, 2]].flatten(2).sum(-1) - 1).abs().max() < 1e-12


def test_long_strings_go_by_blocks_without_being_told(redone: list[int]) -> None:
    actions = random_weights(2, cpu_engine.LONG, 1, 2, seed=1)
    nondeterministic(*actions)
    assert not redone
    nondeterministic(*(part[:, :-1] for part in actions))
    assert redone == [0, 1]
