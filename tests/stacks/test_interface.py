"""What every stack promises its owner, whatever is inside."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition
from tests.stacks.every import STACKS, assert_equal, every_stack, sequence, tensors


@every_stack
def test_a_fresh_stack_reads_zeros(stack: Stack[Any]) -> None:
    state = stack.start(3, dtype=torch.float64)
    assert state.batch_size == 3
    assert torch.equal(state.reading, torch.zeros(3, stack.reading_size, dtype=torch.float64))


@every_stack
def test_step_by_step_equals_scan(stack: Stack[Any], path: str) -> None:
    actions, pushed = sequence(stack, 2, 9)
    readings, last = stack.scan(actions, pushed)
    state = stack.start(2, dtype=torch.float64)
    stepped = []
    for t in range(9):
        state = stack.step(state, actions[:, t], pushed[:, t])
        stepped.append(state.reading)
    exact = {"atol": 0, "rtol": 0} if path == "compiled" else {}
    torch.testing.assert_close(torch.stack(stepped, 1), readings, **exact)
    for ours, theirs in zip(tensors(state), tensors(last), strict=True):
        torch.testing.assert_close(ours, theirs, **exact)
    weight = torch.randn_like(readings)
    for a, b in zip(
        torch.autograd.grad(torch.stack(stepped, 1), (actions, pushed), weight),
        torch.autograd.grad(readings, (actions, pushed), weight),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@every_stack
def test_calling_a_stack_is_scanning(stack: Stack[Any]) -> None:
    actions, pushed = sequence(stack, 2, 5)
    assert torch.equal(stack(actions, pushed)[0], stack.scan(actions, pushed)[0])


@every_stack
def test_drive_is_a_layer_split_and_squashed_and_a_step(stack: Stack[Any], path: str) -> None:
    torch.manual_seed(0)
    driven = stepped = stack.start(3, dtype=torch.float64)
    layer = torch.nn.Linear(5, stack.control_size).double()
    hidden = torch.randn(6, 3, 5, dtype=torch.float64, requires_grad=True)
    for own in hidden:
        driven = stack.drive(driven, own, layer.weight, layer.bias)
        actions, pushed = layer(own).split((stack.action_size, stack.push_size), 1)
        squash = getattr(torch, stack.push_activation)
        stepped = stack.step(stepped, actions, squash(pushed))
    weights = [torch.randn_like(tensor) for tensor in tensors(driven)]
    leaves = (hidden, layer.weight, layer.bias)
    for a, b in zip(tensors(driven), tensors(stepped), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(
        torch.autograd.grad(tensors(driven), leaves, weights),
        torch.autograd.grad(tensors(stepped), leaves, weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(STACKS)),
    chunks=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    seed=st.integers(0, 10**6),
)
def test_chunks_with_carried_state_equal_one_sequence_exactly(
    name: str, chunks: list[int], seed: int
) -> None:
    stack = STACKS[name]
    actions, pushed = sequence(stack, 2, sum(chunks), seed)
    whole, last = stack.scan(actions, pushed)
    state = stack.start(2, dtype=torch.float64)
    parts = []
    for own_actions, own_pushed in zip(actions.split(chunks, 1), pushed.split(chunks, 1), strict=True):
        readings, state = stack.scan(own_actions, own_pushed, state)
        parts.append(readings)
    chunked = torch.cat(parts, 1)
    assert torch.equal(chunked, whole)
    assert_equal(state, last)
    if sum(chunks):
        weight = torch.randn_like(whole)
        for a, b in zip(
            torch.autograd.grad(chunked, (actions, pushed), weight),
            torch.autograd.grad(whole, (actions, pushed), weight),
            strict=True,
        ):
            torch.testing.assert_close(a, b)


@every_stack
def test_the_derivative_flows_through_the_last_state(stack: Stack[Any]) -> None:
    actions, pushed = sequence(stack, 1, 4)

    def run(actions: Tensor, pushed: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensors(stack.scan(actions, pushed)[1]))

    assert torch.autograd.gradcheck(run, (actions, pushed))


@every_stack
def test_the_derivative_flows_through_steps(stack: Stack[Any], path: str) -> None:
    actions, pushed = sequence(stack, 2, 3)

    def run(actions: Tensor, pushed: Tensor) -> tuple[Tensor, ...]:
        state = stack.start(2, dtype=torch.float64)
        for t in range(3):
            state = stack.step(state, actions[:, t], pushed[:, t])
        return tuple(tensors(state))

    assert torch.autograd.gradcheck(run, (actions, pushed))


@every_stack
@pytest.mark.parametrize(("batch", "n"), [(2, 0), (0, 3), (0, 0)])
def test_nothing_to_do(stack: Stack[Any], batch: int, n: int, path: str) -> None:
    readings, state = stack.scan(*sequence(stack, batch, n))
    assert readings.shape == (batch, n, stack.reading_size)
    assert state.batch_size == batch
    if batch == 0:
        actions, pushed = sequence(stack, 0, 1)
        assert stack.step(state, actions[:, 0], pushed[:, 0]).reading.shape[0] == 0


@every_stack
def test_a_stack_is_a_module_without_parameters(stack: Stack[Any]) -> None:
    assert stack.state_dict() == {}
    assert type(stack).__name__ in repr(stack)
    copied = copy.deepcopy(stack)
    actions, pushed = sequence(stack, 2, 3)
    assert torch.equal(copied(actions, pushed)[0], stack(actions, pushed)[0])


@pytest.mark.parametrize(
    ("stack", "parameters"),
    [
        (None, 2084),
        (Superposition(10), 3157),
        (Superposition((3, 3, 3)), 3182),
        (Superposition(20), 4167),
        (Stratification(20), 4146),
    ],
    ids=str,
)
def test_sizes_give_the_dissertation_s_parameter_counts(stack: Stack[Any] | None, parameters: int) -> None:
    """An LSTM of 20 units over 3 symbols, its output layer, and the layer that drives the stack."""
    reading = stack.reading_size if stack else 0
    layers = [torch.nn.LSTM(3 + reading, 20), torch.nn.Linear(20, 4)]
    if stack:
        layers.append(torch.nn.Linear(20, stack.control_size))
    assert sum(p.numel() for layer in layers for p in layer.parameters()) == parameters


@pytest.mark.parametrize(
    ("actions", "pushed", "message"),
    [
        ((2, 5, 4), (2, 5, 6), "actions of shape [2, 5, 4] given, expected [2, 5, 3]"),
        ((2, 3), (2, 5, 6), "expected [batch, length, 3]"),
        ((2, 5, 3), (2, 4, 6), "pushed vectors of shape [2, 4, 6] given, expected [2, 5, 6]"),
        ((2, 5, 3), None, "takes 3 action logits and 6 pushed numbers per step"),
        ((3, 5, 3), (3, 5, 6), "actions of shape [3, 5, 3] given, expected [2, 5, 3]"),
    ],
)
def test_errors_of_a_scan(actions: tuple[int, ...], pushed: tuple[int, ...] | None, message: str) -> None:
    stack = Superposition(6)
    with pytest.raises(NdstackError) as caught:
        stack.scan(torch.zeros(actions), torch.zeros(pushed) if pushed else None, stack.start(2))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_a_step() -> None:
    stack = Stratification(6)
    state = stack.start(2)
    with pytest.raises(NdstackError, match=r"actions of shape \[2, 3\] given, expected \[2, 2\]"):
        stack.step(state, torch.zeros(2, 3), torch.zeros(2, 6))
    with pytest.raises(NdstackError, match=r"weight of shape \[7, 3\] and bias of shape \[8\] given"):
        stack.drive(state, torch.zeros(2, 3), torch.zeros(7, 3), torch.zeros(8))
    with pytest.raises(NdstackError, match=r"pushed vectors are on meta, but the state is on cpu"):
        stack.step(state, torch.zeros(2, 2), torch.zeros(2, 6, device="meta"))
    with pytest.raises(NdstackError, match=r"the hidden state is on meta .* but the stack is on cpu"):
        stack.drive(state, torch.zeros(2, 3, device="meta"), torch.zeros(8, 3), torch.zeros(8))


@pytest.mark.compiled
def test_importing_compiles_nothing() -> None:
    program = "import sys, ndstack.functional, ndstack.stacks; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_falls_back_without_error() -> None:
    stack = Superposition(3)
    actions, pushed = sequence(stack, 2, 3)
    compiled = torch.compile(lambda a, p: stack.scan(a, p)[0], backend="eager")
    torch.testing.assert_close(compiled(actions, pushed), stack.scan(actions, pushed)[0])


@pytest.mark.parametrize("size", [3.0, True, None, "3", -1])
@pytest.mark.parametrize("stack", [Superposition(3), Stratification(3), Nondeterministic(2, 3)])
def test_a_batch_size_that_is_no_number_of_stacks_is_refused_in_one_line(stack, size):
    with pytest.raises(NdstackError, match="batch_size") as caught:
        stack.start(size)
    assert "\n" not in str(caught.value)
