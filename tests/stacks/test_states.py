"""States of stacks: detached, selected, converted, carried on, and refused by another stack."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks import Stack, Stratification, Superposition
from tests.stacks.every import assert_equal, every_stack, sequence, tensors


@every_stack
def test_a_detached_state_stops_the_derivative(stack: Stack[Any]) -> None:
    first, second = sequence(stack, 2, 4), sequence(stack, 2, 4, seed=1)
    _, state = stack.scan(*first)
    detached = state.detach()
    assert_equal(detached, state)
    assert not any(tensor.requires_grad for tensor in tensors(detached))
    readings, _ = stack.scan(*second, detached)
    gradients = torch.autograd.grad(readings.sum(), (*first, *second), allow_unused=True)
    assert gradients[0] is None
    assert gradients[1] is None
    assert gradients[2].abs().sum() > 0


@every_stack
@pytest.mark.parametrize(
    "rows",
    [[2, 0, 0, 1], torch.tensor([1, 1]), slice(1, None), slice(None, None, 2), [], [-1]],
    ids=str,
)
def test_rows_can_be_selected(stack: Stack[Any], rows: Tensor | slice | list[int], path: str) -> None:
    (actions, pushed), (more, more_pushed) = sequence(stack, 3, 4), sequence(stack, 3, 5, seed=1)
    _, state = stack.scan(actions, pushed)
    expected, _ = stack.scan(torch.cat([actions, more], 1), torch.cat([pushed, more_pushed], 1))
    chosen = state.select(rows)
    readings, _ = stack.scan(more[rows], more_pushed[rows], chosen)
    torch.testing.assert_close(readings, expected[:, 4:][rows])
    stepped = stack.step(chosen, more[rows][:, 0], more_pushed[rows][:, 0])
    torch.testing.assert_close(stepped.reading, readings[:, 0])


@every_stack
def test_a_mask_selects_rows(stack: Stack[Any]) -> None:
    _, state = stack.scan(*sequence(stack, 3, 4))
    mask = torch.tensor([True, False, True])
    assert_equal(state.select(mask), state.select([0, 2]))


@every_stack
def test_stepping_leaves_the_old_state_valid(stack: Stack[Any]) -> None:
    actions, pushed = sequence(stack, 2, 6)
    _, state = stack.scan(actions, pushed)
    before = [tensor.clone() for tensor in tensors(state)]
    one = stack.step(state, actions[:, 0], pushed[:, 0])
    stack.step(state, actions[:, 1], pushed[:, 1])
    again = stack.step(state, actions[:, 0], pushed[:, 0])
    assert all(torch.equal(a, b) for a, b in zip(tensors(state), before, strict=True))
    assert_equal(one, again)


@every_stack
def test_a_state_can_change_its_dtype(stack: Stack[Any]) -> None:
    actions, pushed = sequence(stack, 2, 4)
    _, state = stack.scan(actions, pushed)
    single = state.to(dtype=torch.float32)
    assert all(tensor.dtype == torch.float32 for tensor in tensors(single))
    after = stack.step(single, actions[:, 0], pushed[:, 0])
    assert after.reading.dtype == torch.float32
    exact = stack.step(state, actions[:, 0], pushed[:, 0])
    torch.testing.assert_close(after.reading.double(), exact.reading, atol=1e-6, rtol=1e-5)


@every_stack
def test_another_device(stack: Stack[Any]) -> None:
    actions, pushed = (tensor.to("meta") for tensor in sequence(stack, 2, 4))
    readings, state = stack.scan(actions, pushed)
    assert readings.shape == (2, 4, stack.reading_size)
    assert {tensor.device.type for tensor in tensors(state)} == {"meta"}
    layer = torch.nn.Linear(2, stack.control_size, device="meta")
    state = stack.drive(state, torch.empty(2, 2, device="meta"), layer.weight, layer.bias)
    assert state.reading.device.type == "meta"
    _, here = stack.scan(*sequence(stack, 2, 4))
    assert {tensor.device.type for tensor in tensors(here.to("meta"))} == {"meta"}


@every_stack
def test_half_precision_actions_are_computed_in_float32(stack: Stack[Any]) -> None:
    actions, pushed = (tensor.bfloat16() for tensor in sequence(stack, 2, 4))
    readings, state = stack.scan(actions, pushed)
    assert readings.dtype == state.reading.dtype == torch.float32


def test_the_layer_takes_the_dtype_of_the_state() -> None:
    for stack in (Stratification(4), Superposition(4)):
        layer = torch.nn.Linear(5, stack.control_size)
        hidden, state = torch.randn(2, 5), stack.start(2, dtype=torch.float64)
        ours = stack.drive(state, hidden, layer.weight, layer.bias).reading
        layer = layer.double()
        theirs = stack.drive(state, hidden.double(), layer.weight, layer.bias).reading
        torch.testing.assert_close(ours, theirs)


def test_a_state_of_other_sizes_is_refused() -> None:
    three, one = Superposition((3, 3, 3)), Superposition(9)
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        one.step(three.start(2), torch.zeros(2, 3), torch.zeros(2, 9))
    layer = torch.nn.Linear(5, one.control_size)
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        one.drive(three.start(2), torch.zeros(2, 5), layer.weight, layer.bias)
    for stack in (Stratification(4), Superposition(4)):
        foreign = type(stack)(5).start(2)
        with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
            stack.step(foreign, torch.zeros(2, stack.action_size), torch.zeros(2, 4))


@pytest.mark.parametrize(
    "rows",
    [[0.7], [2], [-3], [True], "ab", 0, torch.tensor(0), torch.tensor([[0, 1]]), torch.tensor([0.5]),
     torch.tensor([2]), torch.tensor([True])],
    ids=repr,
)  # fmt: skip
def test_rows_that_a_batch_does_not_have_are_refused(rows: Any) -> None:
    state = Superposition(3).start(2)
    with pytest.raises(NdstackError, match="given for a batch of 2, expected whole numbers below 2, a mask"):
        state.select(rows)


@pytest.mark.parametrize(
    ("rows", "places"),
    [([1, 0, 1], [1, 0, 1]), (range(2), [0, 1]), ([-1], [1]), ([], []), ([True, False], [0]),
     (torch.tensor([False, True]), [1]), (slice(1, None), [1])],
    ids=repr,
)  # fmt: skip
def test_rows_are_numbers_masks_or_slices(rows: Any, places: list[int]) -> None:
    stack = Superposition(3)
    _, state = stack.scan(*sequence(stack, 2, 4))
    assert torch.equal(state.select(rows).reading, state.reading[places])
