"""nan and +inf in what a stack is given: nan from that step on, in that sequence alone, and at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.functional import nondeterministic
from ndstack.nn import StackRNN
from ndstack.ops import stratification as plain_stratification
from ndstack.ops import superposition as plain_superposition
from ndstack.ops.nondeterministic import reference
from ndstack.ops.nondeterministic.settings import shaped
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition

B, N, ROW, STEP = 4, 9, 1, 5
OTHERS = [0, 2, 3]
STACKS = {
    "symbols": Nondeterministic(2, 2),
    "vectors": Nondeterministic(2, 2, vector_size=2),
    "window": Nondeterministic(1, 2, vector_size=2, window=3, read_states=False),
    "normalized": Nondeterministic(2, 2, normalized=True),
    "superposition": Superposition(2),
    "stratification": Stratification(2),
}
BACKENDS = ("cpu", "portable", "reference")


@pytest.fixture
def no_second_try(monkeypatch):
    """The guard must not compute again what has no meaning."""

    def run(*arguments: Any, **options: Any) -> None:
        raise AssertionError("computed again in log space")

    monkeypatch.setattr(reference, "run", run)


def steps_of(stack: Stack[Any], actions: Tensor, pushed: Tensor | None, state: Any) -> Tensor:
    found = []
    for t in range(actions.shape[1]):
        state = stack.step(state, actions[:, t], None if pushed is None else pushed[:, t])
        found.append(state.reading)
    return torch.stack(found, 1)


def readings(stack: Stack[Any], actions: Tensor, pushed: Tensor | None, mode: str) -> Tensor:
    if mode == "scan":
        return stack.scan(actions, pushed)[0]
    if mode == "steps":
        return steps_of(stack, actions, pushed, stack.start(B, dtype=actions.dtype))
    if mode == "branches":  # a chunk, then from its end another chunk and, once more, steps
        parts = [None, None] if pushed is None else [pushed[:, :3], pushed[:, 3:]]
        first, state = stack.scan(actions[:, :3], parts[0])
        second, _ = stack.scan(actions[:, 3:], parts[1], state)
        return torch.cat([first, second + steps_of(stack, actions[:, 3:], parts[1], state)], 1)
    assert isinstance(stack, Nondeterministic)
    bottom = None if stack.bottom is None else stack.bottom.sigmoid().to(actions)
    found = nondeterministic(
        *shaped(stack.log_weights(actions), stack.setting(mode)),
        vectors=pushed,
        bottom=bottom,
        window=stack.window,
        backend=mode,
    )
    assert isinstance(found, Tensor)
    return (found if stack.read_states else found.sum(2)).flatten(2)


def everything(stack: Stack[Any], given: list[Tensor], mode: str, factors: float = 1.0) -> list[Tensor]:
    """Readings, and the derivatives of a number that depends on all of them."""
    given = [part.clone().requires_grad_() for part in given]
    found = readings(stack, given[0], given[1] if stack.push_size else None, mode)
    weights = torch.linspace(0.5, 1.5, found.numel(), dtype=found.dtype).view(found.shape)
    weights[ROW] *= factors
    (found * weights).sum().backward()
    return [found.detach(), *(part.grad for part in given[: 2 if stack.push_size else 1])]


def some(stack: Stack[Any], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = [(B, N, stack.action_size), (B, N, stack.push_size)]
    return [torch.randn(size, generator=generator, dtype=dtype) for size in sizes]


def modes(name: str) -> tuple[str, ...]:
    own = ("scan", "steps", "branches")
    return own if name in ("superposition", "stratification") else (*own, *BACKENDS)


CASES = [(name, mode) for name in STACKS for mode in modes(name)]


@pytest.mark.parametrize("bad", ["nan", "inf", "vector"])
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_nan_from_that_step_on_in_that_sequence_alone(name, mode, bad):
    stack: Stack = STACKS[name]
    dtype = torch.float32 if mode == "portable" else torch.float64
    given = some(stack, dtype)
    if (bad == "vector" and not stack.push_size) or (bad == "inf" and name == "stratification"):
        pytest.skip("there is no such thing")
    invalid = [part.clone() for part in given]
    if bad == "vector":
        invalid[1][ROW, STEP] = math.nan
    else:
        invalid[0][ROW, STEP, 1] = float(bad)
    expected, found = everything(stack, given, mode), everything(stack, invalid, mode)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours[OTHERS], theirs[OTHERS])
    rounding = 1e-14 if mode == "reference" else 0.0  # it shifts vectors by their least number
    assert torch.allclose(found[0][ROW, :STEP], expected[0][ROW, :STEP], rtol=0, atol=rounding)
    assert found[0][ROW, STEP:].isnan().all()
    if isinstance(stack, Nondeterministic):
        assert found[1][ROW].isnan().all()
    else:  # by their equations, nothing that was popped before that step has to do with it
        assert found[1][ROW, STEP].isnan().all()


@pytest.mark.parametrize("mode", ["scan", "steps", "branches", "cpu", "portable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_not_computed_again(mode, dtype, no_second_try):
    stack, given = STACKS["vectors"], some(STACKS["vectors"], dtype)
    given[0][ROW, STEP, 0] = math.nan
    found = everything(stack, given, mode)
    assert found[0][OTHERS].isfinite().all()


@pytest.mark.parametrize("mode", ["scan", "steps", "branches", "cpu", "portable"])
def test_derivatives_that_are_nan_stay_in_their_sequence(mode, no_second_try):
    stack, given = STACKS["symbols"], some(STACKS["symbols"], torch.float64)
    expected, found = everything(stack, given, mode), everything(stack, given, mode, math.nan)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1][OTHERS], expected[1][OTHERS])
    assert found[1][ROW].isnan().all()


@pytest.mark.parametrize("controller", ["lstm", "gru"])
@pytest.mark.parametrize("name", STACKS)
def test_networks(name, controller, no_second_try):
    torch.manual_seed(0)
    rnn = StackRNN(2, 3, STACKS[name], controller=controller, output_reading=True)
    x = torch.randn(B, N, 2)
    y = x.clone()
    y[ROW, STEP, 0] = math.nan

    def run(inputs: Tensor) -> tuple[Tensor, Tensor]:
        inputs = inputs.clone().requires_grad_()
        first, state = rnn(inputs[:, :7])
        outputs = torch.cat([first, rnn(inputs[:, 7:8], state)[0], rnn(inputs[:, 7:], state)[0]], 1)
        (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
        return outputs.detach(), gradient

    expected, found = run(x), run(y)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours[OTHERS], theirs[OTHERS])
    assert torch.equal(found[0][ROW, :STEP], expected[0][ROW, :STEP])
    assert found[0][ROW, STEP:].isnan().all()
    assert found[1][ROW].isnan().all()


@pytest.mark.parametrize("name", ["superposition", "stratification"])
@pytest.mark.parametrize("bad", [0, 1])
def test_plain_torch_operations_say_the_same(name, bad, monkeypatch):
    stack = STACKS[name]
    given = some(stack, torch.float64)
    given[bad][ROW, STEP, 1] = math.nan
    compiled = [everything(stack, given, mode)[0] for mode in ("scan", "steps")]
    for module in (plain_stratification, plain_superposition):
        monkeypatch.setattr(module, "compilable", lambda tensor: False)
    for mode, ours in zip(("scan", "steps"), compiled, strict=True):
        assert torch.allclose(everything(stack, given, mode)[0], ours, rtol=0, atol=1e-12, equal_nan=True)


def test_a_diverged_row_whose_chart_was_lost_before():
    """Weights too far apart for float64, then a nan: the row is in log space when it comes."""
    stack = Nondeterministic(1, 3)
    actions = torch.randn(2, 6, stack.action_size, dtype=torch.float64)
    actions[1, :3] *= 5000
    actions[1, 4, 0] = math.nan
    for mode in ("scan", "steps"):
        found = (
            stack.scan(actions)[0]
            if mode == "scan"
            else steps_of(stack, actions, None, stack.start(2, dtype=torch.float64))
        )
        assert found[0].isfinite().all()
        assert found[1, :4].isfinite().all()
        assert found[1, 4:].isnan().all()


def test_vectors_that_a_window_has_forgotten_get_their_derivatives():
    """The chart of a window of 1 is moved many times between the first step and the nan."""
    stack = Nondeterministic(2, 2, vector_size=2, window=1)
    torch.manual_seed(3)
    actions = torch.randn(2, 40, stack.action_size)
    vectors = torch.rand(2, 40, 2, requires_grad=True)
    actions[0, 35, 0] = math.nan
    state, total = stack.start(2), torch.zeros(())
    for t in range(40):
        state = stack.step(state, actions[:, t], vectors[:, t])
        total = total + state.reading.sum()
    (grad,) = torch.autograd.grad(total, vectors)
    assert grad[0].isnan().all()
    assert grad[1].isfinite().all()
    assert grad[1, 0].abs().sum() > 0
