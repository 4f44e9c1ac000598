"""The precision guard: branches far behind their rivals, extreme weights, and no survivors."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from tests.ops.random_automata import assert_near, gradients, random_weights
from torch import Tensor

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.ops.nondeterministic import guarded_scan as guarded
from ndstack.ops.nondeterministic import log_space
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.stacks.nondeterministic import Nondeterministic

FAST = pytest.mark.parametrize("backend", ["cpu", "portable"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])


def late_winner(nats: float, rest: int, dtype: torch.dtype) -> list[Tensor]:
    """A branch that falls behind under equal tops, and is the only one left in the end.

    The bottom is replaced by 1 with weight 1, by 2 and 3 with weights e^-nats and e^-(nats + 1). A
    0 is pushed on each and stays for some steps, so that all have the same top, and is popped
    again. Then all with 1 on top die.
    """
    n = rest + 4
    push, replace = (torch.full((1, n, 1, 4, 1, 4), -math.inf) for _ in range(2))
    pop = torch.full((1, n, 1, 4, 1), -math.inf)
    replace[0, 0, 0, 0, 0, 1:] = torch.tensor([0.0, -nats, -nats - 1])
    push[0, 1, 0, 1:, 0, 0] = 0.0
    replace[0, 2 : 2 + rest, 0, 0, 0, 0] = 0.0
    pop[0, 2 + rest, 0, 0, 0] = 0.0
    replace[0, 3 + rest, 0, 2, 0, 2] = 0.0
    replace[0, 3 + rest, 0, 3, 0, 3] = 0.0
    return [tensor.to(dtype).requires_grad_() for tensor in (push, replace, pop)]


def assert_late_winner_read(readings: Tensor, actions: list[Tensor], nats: float) -> None:
    """The last reading is (0, 0, p, 1 - p) with p = 1 / (1 + e^-1); its gradient is p (1 - p)."""
    p = 1 / (1 + math.exp(-1))
    expected = torch.tensor([0.0, 0.0, p, 1 - p], dtype=readings.dtype)
    assert torch.allclose(readings[0, -1].flatten(), expected, atol=1e-6)
    popped = readings[0, -2].flatten()
    assert popped[2].item() == pytest.approx(math.exp(-nats), rel=1e-4, abs=1e-40)
    found = torch.autograd.grad(readings[0, -1].flatten()[2], actions, allow_unused=True)
    grads = [torch.zeros_like(a) if g is None else g for a, g in zip(actions, found, strict=True)]
    assert all(grad.isfinite().all() for grad in grads)
    first = grads[1][0, 0, 0, 0, 0]
    assert torch.allclose(first[2:], torch.tensor([1.0, -1.0]).to(first) * p * (1 - p), atol=1e-6)
    assert first[:2].abs().max() <= 1e-6


@pytest.mark.parametrize("rest", [0, 6])
@pytest.mark.parametrize("nats", [50.0, 90.0, 120.0, 800.0, 9000.0])
@FAST
@DTYPES
def test_a_branch_far_behind_that_survives_alone_reads_right(
    nats: float, rest: int, backend: str, dtype: torch.dtype
) -> None:
    actions = late_winner(nats, rest, dtype)
    readings = nondeterministic(*actions, backend=backend)
    assert isinstance(readings, Tensor)
    assert_late_winner_read(readings, actions, nats)


@pytest.mark.parametrize("nats", [50.0, 90.0, 120.0, 800.0])
@pytest.mark.parametrize("window", [None, 9])
@DTYPES
def test_so_it_does_step_by_step(nats: float, window: int | None, dtype: torch.dtype) -> None:
    actions = late_winner(nats, 3, dtype)
    stack = Nondeterministic(1, 4, window=window)
    state = stack.start(1, dtype=dtype)
    readings = []
    for t in range(actions[0].shape[1]):
        state = stack.step(state, torch.cat([action[:, t].flatten(1) for action in actions], -1))
        readings.append(state.reading)
    assert_late_winner_read(torch.stack(readings, 1), actions, nats)


def test_the_guard_goes_to_float64_and_then_to_log_space(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plain_scan, plain_log = guarded.scan, log_space.in_log_space

    def scan(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        calls.append(str(actions.dtype))
        return plain_scan(actions, setting)

    def in_log_space(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        calls.append("log")
        return plain_log(actions, setting)

    monkeypatch.setattr(guarded, "scan", scan)
    monkeypatch.setattr(guarded, "in_log_space", in_log_space)
    setting = Setting(1, 4, None, True, "cpu", False)

    def path(nats: float) -> list[str]:
        calls.clear()
        parts = [action.flatten(2) for action in late_winner(nats, 2, torch.float32)]
        scan(torch.cat(parts, -1), setting)
        return calls.copy()

    assert path(20.0) == ["torch.float32"]
    assert path(120.0) == ["torch.float32", "torch.float64"]
    assert path(800.0) == ["torch.float32", "torch.float64", "log"]


def test_only_the_sequences_that_need_it_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    plain = guarded.scan

    def scan(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        again.append(actions.shape[0])
        return plain(actions, setting)

    monkeypatch.setattr(guarded, "scan", scan)
    parts = [late_winner(nats, 2, torch.float32) for nats in (1.0, 120.0, 2.0)]
    joined = [torch.cat(three) for three in zip(*parts, strict=True)]
    scan(
        torch.cat([a.flatten(2) for a in joined], -1),
        Setting(1, 4, None, True, "cpu", False),
    )
    assert again == [3, 1]


@pytest.mark.parametrize("attend", [False, True])
@FAST
@DTYPES
def test_a_gradient_that_is_not_finite_is_computed_again(
    dtype: torch.dtype, backend: str, attend: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 after float32, in log space after float64; other sequences keep theirs."""
    actions = [a.detach().to(dtype) for a in random_weights(3, 6, 2, 2)]
    given = torch.cat([action.flatten(2) for action in actions], -1).requires_grad_()
    setting = Setting(2, 2, None, True, backend, attend)

    def gradient() -> Tensor:
        reading, attention = guarded.scan(given, setting)
        return torch.autograd.grad(reading.square().sum() + attention.pow(3).sum(), given)[0]

    honest = gradient()
    module = importlib.import_module(f"ndstack.ops.nondeterministic.{backend}.scan")
    plain = module.gradient

    def damaged(chart: object, setting: object, actions: Tensor, *rest: object) -> Tensor:
        result: Tensor = plain(chart, setting, actions, *rest)
        if actions.dtype == dtype:
            result[1, 2, 3] = math.inf
        return result

    monkeypatch.setattr(module, "gradient", damaged)
    mended = gradient()
    assert torch.equal(mended[0], honest[0])
    assert torch.equal(mended[2], honest[2])
    assert torch.allclose(mended[1], honest[1], atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("scale", [300.0, 1e4])
@FAST
@DTYPES
def test_extreme_weights_agree_with_the_reference(scale: float, backend: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        actions = random_weights(2, 9, 2, 2, scale=scale / 3, zeros=0.3, seed=seed)
        exact = [nondeterministic(*actions, backend="reference")]
        given = [action.detach().to(dtype).requires_grad_() for action in actions]
        ours = [nondeterministic(*given, backend=backend)]
        assert_near(ours, exact, 1e-5 if dtype == torch.float32 else 1e-10)
        assert_near(gradients(ours, given), gradients(exact, list(actions)), 1e-5)


@pytest.mark.parametrize("backend", ["cpu", "portable", "reference"])
@pytest.mark.parametrize("bottom_fix", [True, False])
@DTYPES
def test_where_no_run_survives_readings_and_gradients_are_zero(
    backend: str, bottom_fix: bool, dtype: torch.dtype
) -> None:
    actions = [a.detach().clone() for a in random_weights(2, 6, 2, 2)]
    for action in actions:
        action[0, 3] = -math.inf  # the first sequence dies at step 4
    actions = [action.to(dtype).requires_grad_() for action in actions]
    vectors = torch.randn(2, 6, 2).to(dtype).requires_grad_()
    readings, attention = nondeterministic(
        *actions, vectors=vectors, backend=backend, bottom_fix=bottom_fix, return_attention=True
    )
    assert (readings[0, 3:] == 0).all()
    assert (attention[0, 3:] == 0).all()
    assert (readings[0, :3] != 0).any()
    assert (readings[1] != 0).flatten(1).any(1).all()
    late = torch.autograd.grad(
        readings[0, 3:].sum() + attention[0, 3:].sum(), [*actions, vectors], retain_graph=True
    )
    assert all((grad == 0).all() for grad in late)
    every = torch.autograd.grad(readings.sum(), [*actions, vectors])
    assert all(grad.isfinite().all() for grad in every)
    assert all((grad[0, 3:] == 0).all() for grad in every)


@pytest.mark.parametrize("size", [None, 2], ids=["symbols", "vectors"])
@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_gradients_of_steps_whose_window_keeps_next_to_nothing(
    states: int, symbols: int, size: int | None
) -> None:
    """Nearly all runs replace until the window has forgotten what is below: a tiny rest grows to 1."""
    stack = Nondeterministic(states, symbols, vector_size=size, window=2).double()
    push, replace, pop = random_weights(30, 16, states, symbols, scale=100.0, zeros=0.1, seed=states)
    with torch.no_grad():
        push -= 200
        replace += 200
    actions = torch.cat([part.detach().flatten(2) for part in (push, replace, pop)], -1).requires_grad_()
    vectors = None if size is None else torch.rand(30, 16, size, dtype=torch.float64)
    bottom = None if stack.bottom is None else stack.bottom.detach().sigmoid()
    expected = log_space.in_log_space(actions, stack.setting(), vectors, bottom)[0].flatten(2)
    state, readings = stack.start(30, dtype=torch.float64), []
    for t in range(16):
        state = stack.step(state, actions[:, t], None if vectors is None else vectors[:, t])
        readings.append(state.reading)
    found = torch.stack(readings, 1)
    assert_near([found], [expected], 1e-9)
    assert_near(gradients([found], [actions]), gradients([expected], [actions]), 1e-9)
