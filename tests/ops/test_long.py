"""Scans by blocks of time steps: the same values and gradients as step by step, and the same guard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.random_automata import assert_near, gradients, random_weights
from tests.ops.test_backends import automata, run
from tests.ops.test_precision import assert_late_winner_read, late_winner
from torch import Tensor

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.ops.nondeterministic.cpu import scan, scan_loops

NEVER = 10**9
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
Results = tuple[list[Tensor], list[Tensor]]


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where steps were done one by one: their first time, and how many sequences."""
    found: list[tuple[int, int]] = []
    forward = scan_loops.forward

    class Counted:
        backward = staticmethod(scan_loops.backward)

        @staticmethod
        def forward(shape: Any, past: Any, lo: int, hi: int, start: int, *rest: Any) -> None:
            found.append((start, hi - lo))
            forward(shape, past, lo, hi, start, *rest)

    monkeypatch.setattr(scan, "scan_loops", Counted)
    return found


def with_blocks(size: int, work: Callable[[], Any], long: int = 0) -> Any:
    """What `work` gives if scans of charts of `long` bytes or more go by blocks of so many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "LONG", long)
        patch.setattr(scan, "BLOCK", size)
        return work()


def compare(case: dict[str, Any], size: int, dtype: torch.dtype = torch.float64) -> None:
    """By blocks and step by step, a case of `test_backends`: outputs, and the derivatives by every input."""
    expected: Results = with_blocks(size, lambda: run(case, "cpu", dtype), NEVER)
    found: Results = with_blocks(size, lambda: run(case, "cpu", dtype))
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("window", [None, 1, 20, 50], ids=str)
@pytest.mark.parametrize("fix", [True, False], ids=["fixed", "unfixed"])
@pytest.mark.parametrize(
    "states, symbols, n, size",
    [(2, 3, 70, 7), (3, 3, 100, 30), (1, 1, 40, 1), (1, 2, 66, 32), (2, 1, 131, 64), (4, 2, 65, 5)],
)
def test_blocks_of_any_size_agree_with_single_steps(
    stepped: list[Any], states: int, symbols: int, n: int, size: int, fix: bool, window: int | None
) -> None:
    case = {"sizes": (2, n, states, symbols), "scale": 2.0, "zeros": 0.2, "window": window, "seed": n}
    case |= {"bottom_fix": fix, "vectors": 2, "attention": True}
    compare(case, size)
    if window != 1 and states * symbols > 1:  # else no run survives
        assert stepped == [(0, 2)]  # where that was asked for
    compare(case, size, torch.float32)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(automata(), st.integers(1, 12), st.sampled_from([torch.float64, torch.float32]))
def test_blocks_agree_with_single_steps_on_random_automata(
    case: dict[str, Any], size: int, dtype: torch.dtype
) -> None:
    compare(case, size, dtype)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(automata(), st.integers(1, 5), st.sampled_from([torch.float64, torch.float32]))
def test_blocks_agree_with_the_reference(case: dict[str, Any], size: int, dtype: torch.dtype) -> None:
    expected = run(case, "reference", torch.float64)
    found: Results = with_blocks(size, lambda: run(case, "cpu", dtype))
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("window", [None, 30], ids=str)
@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_extreme_weights_agree_with_single_steps(
    scale: float, window: int | None, dtype: torch.dtype
) -> None:
    case = {"sizes": (3, 70, 2, 3), "scale": scale, "zeros": 0.3, "window": window, "seed": 5}
    compare(case | {"bottom_fix": True, "vectors": 0, "attention": False}, 12, dtype)


@DTYPES
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("rest", [3, 20, 45])
@pytest.mark.parametrize("nats", [50.0, 90.0, 120.0, 800.0])
def test_a_branch_that_falls_behind_wins_late_across_block_borders(
    nats: float, rest: int, size: int, dtype: torch.dtype
) -> None:
    actions = late_winner(nats, rest, dtype)
    readings = with_blocks(size, lambda: nondeterministic(*actions))
    with_blocks(size, lambda: assert_late_winner_read(readings, actions, nats))


@DTYPES
def test_only_a_block_that_leaves_the_range_is_done_step_by_step(
    stepped: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    actions = [part.detach().to(dtype) for part in random_weights(3, 60, 2, 2, seed=8)]
    for part in actions:
        part[1, 40:] = -math.inf  # no run survives
    readings = with_blocks(12, lambda: nondeterministic(*actions))
    assert stepped == [(36, 1), (48, 1)]
    assert (readings[1, 40:] == 0).all()
    assert (readings[[0, 2]].flatten(2).sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("attention", [False, True])
def test_runs_that_underflow_to_no_effect_are_no_reason_for_single_steps(
    stepped: list[tuple[int, int]], attention: bool
) -> None:
    """Pops are rare, so that old rows of the chart leave the range of float32; no result depends on them."""
    push, replace, pop = (part.detach().float() for part in random_weights(1, 150, 2, 2, scale=0.3, seed=2))
    given = [part.requires_grad_() for part in (push, replace, pop - 7)]

    def results() -> Results:
        outputs = nondeterministic(*given, return_attention=attention)
        shown = list(outputs) if isinstance(outputs, tuple) else [outputs]
        return shown, gradients(shown, given)

    found = with_blocks(30, results)
    assert not stepped
    wide = [part.detach().double().requires_grad_() for part in given]
    exact = nondeterministic(*wide, return_attention=attention)
    outputs = list(exact) if isinstance(exact, tuple) else [exact]
    assert_near(found[0], outputs, 1e-6)
    assert_near(found[1], gradients(outputs, wide), 1e-5)


def test_long_strings_go_by_blocks_without_being_told(stepped: list[tuple[int, int]]) -> None:
    actions = random_weights(2, 250, 2, 3, seed=1)
    nondeterministic(*(part[:, :200] for part in actions), window=150)
    assert stepped == [(0, 2)]
    nondeterministic(*actions)
    assert stepped == [(0, 2)]


def test_nothing_is_lost_between_sequences_that_share_memory() -> None:
    """Sequences of a batch are done one after the other in the same memory."""
    actions = [part.detach().requires_grad_() for part in random_weights(3, 45, 2, 2, seed=4)]

    def results(rows: slice) -> list[Tensor]:
        own = [part[rows].detach().requires_grad_() for part in actions]
        readings = with_blocks(10, lambda: nondeterministic(*own, window=15))
        weights = torch.arange(readings[0].numel(), dtype=torch.float64).reshape(readings[0].shape).sin()
        return torch.autograd.grad((readings * weights).sum(), own)  # type: ignore[return-value]

    together = results(slice(0, 3))
    for row in range(3):
        alone = results(slice(row, row + 1))
        for all_of_them, one in zip(together, alone, strict=True):
            assert torch.equal(all_of_them[row], one[0])
