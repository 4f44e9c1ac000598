"""Derivatives through steps that share a chart (`nondeterministic.cpu.steps`), however they are taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.stacks import Stack, Stratification, Superposition
from ndstack.stacks.nondeterministic import Nondeterministic, NondeterministicState

STACK = Nondeterministic(2, 2)


def logits(steps: int, seed: int = 0, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, steps, STACK.action_size)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def stepped(
    actions: Tensor, state: NondeterministicState | None = None
) -> tuple[Tensor, NondeterministicState]:
    """The readings [B, n, R], step by step, and the last state."""
    state = STACK.start(actions.shape[0], dtype=torch.float64) if state is None else state
    readings = []
    for some in actions.unbind(1):
        state = STACK.step(state, some)
        readings.append(state.reading)
    return torch.stack(readings, 1), state


def weighted(readings: Tensor) -> Tensor:
    """A number that depends on every reading in a way of its own."""
    count = readings.numel()
    return (readings * torch.linspace(-1, 2, count, dtype=readings.dtype).view(readings.shape)).sum()


def grad(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs, retain_graph=True)


def close(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=1e-10, atol=1e-11)


def test_branches_add_up() -> None:
    """A state with two successors, one of which uses the memory that the other has filled."""
    stem, left, right = logits(6), logits(4, 1), logits(5, 2)
    first, state = stepped(stem)
    loss = weighted(first) + weighted(stepped(left, state)[0]) + weighted(stepped(right, state)[0])
    alone = weighted(STACK.scan(stem)[0])
    for branch in (left, right):
        alone = alone + weighted(STACK.scan(torch.cat([stem, branch], 1))[0][:, 6:])
    for ours, theirs in zip(grad(loss, stem, left, right), grad(alone, stem, left, right), strict=True):
        assert close(ours, theirs)


@pytest.mark.parametrize("trunk_first", [True, False])
def test_a_branch_from_before_the_chart_grew(trunk_first: bool) -> None:
    """A chart has room for 128 steps, then it moves to larger memory; earlier states stay in the smaller."""
    stem, trunk, branch = logits(10, batch=2), logits(125, 1, batch=2), logits(5, 2, batch=2)
    first, state = stepped(stem)
    order = (trunk, branch) if trunk_first else (branch, trunk)
    loss = weighted(first) + sum(weighted(stepped(part, state)[0]) for part in order)
    alone = weighted(STACK.scan(stem)[0])
    for part in (trunk, branch):
        alone = alone + weighted(STACK.scan(torch.cat([stem, part], 1))[0][:, 10:])
    for ours, theirs in zip(grad(loss, stem, trunk, branch), grad(alone, stem, trunk, branch), strict=True):
        assert close(ours, theirs)


@pytest.mark.parametrize("states", [1, 3, 4])
def test_branches_add_up_for_every_number_of_states(states: int) -> None:
    """What steps say about columns from before them takes another path for each."""
    stack = Nondeterministic(states, 2)
    generator = torch.Generator().manual_seed(states)
    shapes = [(2, steps, stack.action_size) for steps in (5, 3, 4)]
    given = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    stem, *branches = [actions.requires_grad_() for actions in given]
    _, state = stack.scan(stem)
    ours = sum(weighted(stack.scan(branch, state=state)[0]) for branch in branches)
    whole = sum(weighted(stack.scan(torch.cat([stem, branch], 1))[0][:, 5:]) for branch in branches)
    assert isinstance(ours, Tensor)
    assert isinstance(whole, Tensor)
    for mine, theirs in zip(grad(ours, stem, *branches), grad(whole, stem, *branches), strict=True):
        assert close(mine, theirs)


def test_rows_taken_in_the_middle() -> None:
    stem, rest = logits(5), logits(4, 1)
    rows = torch.tensor([2, 0, 2])
    _, state = stepped(stem)
    ours = grad(weighted(stepped(rest, state.select(rows))[0]), stem, rest)
    whole = STACK.scan(torch.cat([stem[rows], rest], 1))[0][:, 5:]
    for mine, theirs in zip(ours, grad(weighted(whole), stem, rest), strict=True):
        assert close(mine, theirs)


def test_a_graph_can_be_used_again_and_in_part() -> None:
    """A pass that ends half-way leaves nothing behind that a later one could take for its own."""
    actions = logits(8)
    parts = [part.clone() for part in actions.unbind(1)]
    state, readings = STACK.start(3, dtype=torch.float64), []
    for part in parts:
        state = STACK.step(state, part)
        readings.append(state.reading)
    loss = weighted(torch.stack(readings, 1))
    expected = grad(weighted(STACK.scan(actions)[0]), actions)[0]
    half = grad(loss, parts[5])[0]
    assert close(half, expected[:, 5])
    assert close(grad(readings[3].square().sum(), actions)[0][:, 4:], torch.zeros_like(expected[:, 4:]))
    for _ in range(2):
        assert close(grad(loss, actions)[0], expected)


def test_steps_without_derivatives_cut_the_chain() -> None:
    first, middle, last = logits(4), logits(3, 1), logits(5, 2)
    readings, state = stepped(first)
    with torch.no_grad():
        _, state = stepped(middle, state)
    later, _ = stepped(last, state)
    ours = grad(weighted(readings) + weighted(later), first, last)
    assert close(ours[0], grad(weighted(STACK.scan(first)[0]), first)[0])
    cut, _ = STACK.scan(last, state=state.detach())
    assert close(ours[1], grad(weighted(cut), last)[0])


@pytest.mark.compiled
def test_a_chain_outgrows_its_memory() -> None:
    actions = logits(300, batch=1)
    readings, state = stepped(actions)
    assert state.chart is not None
    assert state.chart.chain is not None
    assert state.chart.chain.begin == 0
    whole, _ = STACK.scan(actions)
    assert close(readings, whole)
    assert close(grad(weighted(readings), actions)[0], grad(weighted(whole), actions)[0])


@pytest.mark.compiled
def test_a_state_that_grew_has_other_successors_too() -> None:
    """The first successor moved to larger memory; the second must not take its place in the chain."""
    steps = 128
    stem, left, right = logits(steps - 1, batch=1), logits(2, 1, 1), logits(2, 2, 1)
    _, state = stepped(stem)
    ours = weighted(stepped(left, state)[0]) + weighted(stepped(right, state)[0])
    theirs = torch.zeros((), dtype=torch.float64)
    for branch in (left, right):
        theirs = theirs + weighted(STACK.scan(torch.cat([stem, branch], 1))[0][:, steps - 1 :])
    for mine, other in zip(grad(ours, stem, left, right), grad(theirs, stem, left, right), strict=True):
        assert close(mine, other)


def test_the_layer_of_a_controller_has_derivatives() -> None:
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((3, 7, 4), (STACK.action_size, 4), (STACK.action_size,))
    )
    state, readings = STACK.start(3, dtype=torch.float64), []
    for one in hidden.unbind(1):
        state = STACK.drive(state, one, weight, bias)
        readings.append(state.reading)
    whole, _ = STACK.scan(torch.nn.functional.linear(hidden, weight, bias))
    ours = grad(weighted(torch.stack(readings, 1)), hidden, weight, bias)
    for mine, theirs in zip(ours, grad(weighted(whole), hidden, weight, bias), strict=True):
        assert close(mine, theirs)


@pytest.mark.parametrize(
    "stack", [Superposition(3), Stratification(3)], ids=["superposition", "stratification"]
)
def test_a_layer_that_steps_share_sums_up_their_derivatives(stack: Stack[Any]) -> None:
    """From one pass and the next, over branches, and with another layer in between."""
    generator = torch.Generator().manual_seed(4)
    hidden, weight, other = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((2, 6, 4), (stack.control_size, 4), (stack.control_size, 4))
    )
    bias = torch.zeros(stack.control_size, dtype=torch.float64, requires_grad=True)
    layers = [weight, weight, other, weight, weight]

    def run(whole: bool) -> Tensor:
        state, readings = stack.start(2, dtype=torch.float64), []
        for t, layer in enumerate(layers):
            controls = torch.nn.functional.linear(hidden[:, t], layer, bias)
            squash = getattr(torch, stack.push_activation)
            split = controls[:, : stack.action_size], squash(controls[:, stack.action_size :])
            state = stack.step(state, *split) if whole else stack.drive(state, hidden[:, t], layer, bias)
            readings.append(state.reading)
        branch = stack.drive(state, hidden[:, 5], weight, bias)
        return weighted(torch.stack([*readings, branch.reading], 1)) + state.reading.square().sum()

    expected, ours = grad(run(True), hidden, weight, other, bias), run(False)
    assert close(grad(ours, hidden)[0], expected[0])
    for _ in range(2):
        for mine, theirs in zip(grad(ours, hidden, weight, other, bias), expected, strict=True):
            assert close(mine, theirs)


@pytest.mark.parametrize("trunk", ["left", "right"])
def test_a_nan_on_one_branch_leaves_the_derivatives_of_the_other(trunk: str) -> None:
    """They share the stem, and the first of them its memory."""
    stem, left, right = logits(4), logits(3, 1), logits(5, 2)
    bad = right.detach().clone()
    bad[1, 2, 0] = torch.nan
    bad.requires_grad_()
    _, state = stepped(stem)
    order = (left, bad) if trunk == "left" else (bad, left)
    ours = grad(sum((weighted(stepped(part, state)[0]) for part in order), torch.zeros(())), stem, left, bad)
    _, state = stepped(stem)
    theirs = grad(weighted(stepped(left, state)[0]) + weighted(stepped(right, state)[0]), stem, left, right)
    assert close(ours[1], theirs[1])
    others = torch.tensor([0, 2])
    for mine, expected in zip(ours, theirs, strict=True):
        assert close(mine[others], expected[others])
    assert ours[0][1].isnan().all()
    assert ours[2][1].isnan().all()


def test_two_threads_continue_one_state() -> None:
    """The right to write after a chart is taken before anything is written, so only one of them has it."""
    stem, left, right = logits(3), logits(9, 1), logits(9, 2)
    with torch.no_grad():
        for _ in range(20):
            _, state = stepped(stem)
            with ThreadPoolExecutor(2) as pool:
                found = [pool.submit(STACK.scan, branch, None, state) for branch in (left, right)]
            for branch, result in zip((left, right), found, strict=True):
                whole, _ = STACK.scan(torch.cat([stem, branch], 1))
                assert close(result.result()[0], whole[:, 3:])
        _, state = stepped(stem)
    assert state.chart is not None
    first, second = (state.chart.grow(2).store.columns for _ in range(2))
    assert first.data_ptr() != second.data_ptr()
