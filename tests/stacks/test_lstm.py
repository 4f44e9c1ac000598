"""Stacks that run with their controller in one operation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn import StackRNN
from ndstack.nn.fused import FusedLSTM, LSTMWeights, run_lstm, step_lstm
from ndstack.nn.fused.nondeterministic import NondeterministicLSTM
from ndstack.stacks import Nondeterministic, Stack, Superposition
from tests.stacks.every import every_stack, sequence, tensors


def controller(
    stack: Stack[Any], batch: int, n: int, units: int = 3
) -> tuple[Tensor, LSTMWeights, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)

    def random(*shape: int) -> Tensor:
        return (torch.randn(*shape, dtype=torch.float64) / 2).requires_grad_()

    weights = LSTMWeights(
        random(4 * units, stack.reading_size),
        random(4 * units, units),
        random(stack.control_size, units),
        random(stack.control_size),
    )
    return random(batch, n, 4 * units), weights, (random(batch, units), random(batch, units))


@every_stack
def test_an_lstm_in_one_operation_equals_its_steps(stack: Stack[Any]) -> None:
    inputs, weights, memory = controller(stack, 2, 9)
    actions, pushed = sequence(stack, 2, 3)
    _, start = stack.scan(actions, pushed)
    outcomes = []
    for run in (run_lstm, FusedLSTM().run):
        hidden, readings, last, state = run(stack, inputs, weights, memory, start)
        outcomes.append((hidden, readings, *last, *tensors(state)))
    leaves = (inputs, *weights, *memory, actions, pushed)
    directions = [torch.randn_like(tensor) for tensor in outcomes[0]]
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(
        *(torch.autograd.grad(o, leaves, directions, retain_graph=True) for o in outcomes),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@every_stack
@pytest.mark.parametrize("seen", [(0, 1, 2), (0,), (2,)])
def test_a_step_with_its_lstm_equals_cell_and_drive(stack: Stack[Any], seen: tuple[int, ...]) -> None:
    """Values and derivatives, whether all that a step gives is used or only hidden states or readings."""
    inputs, weights, memory = controller(stack, 2, 5)
    actions, pushed = sequence(stack, 2, 3)
    _, start = stack.scan(actions, pushed)
    outcomes = []
    for step in (step_lstm, FusedLSTM().step):
        before, state, steps = memory, start, []
        for gates in inputs.unbind(1):
            before, state = step(stack, gates, weights, before, state)
            steps += [(*before, state.reading)[place] for place in seen]
        outcomes.append(steps)
    leaves = (inputs, *weights, *memory, actions, pushed)
    directions = [torch.randn_like(tensor) for tensor in outcomes[0]]
    gradients = [torch.autograd.grad(one, leaves, directions, retain_graph=True) for one in outcomes]
    for ours, theirs in zip(outcomes[0] + [*gradients[0]], outcomes[1] + [*gradients[1]], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_step_with_an_lstm_of_another_precision() -> None:
    stack = Superposition(2)
    inputs, weights, memory = controller(stack, 2, 1)
    (hidden, _), state = step_lstm(stack, inputs[:, 0], weights, memory, stack.start(2))
    assert hidden.dtype == state.reading.dtype == torch.float32


@every_stack
def test_the_lstm_is_torch_s_lstm_fed_with_readings(stack: Stack[Any]) -> None:
    cell = torch.nn.LSTMCell(2 + stack.reading_size, 5).double()
    layer = torch.nn.Linear(5, stack.control_size).double()
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    memory = torch.zeros(3, 5, dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
    state = stack.start(3, dtype=torch.float64)
    from_x, from_reading = cell.weight_ih.split((2, stack.reading_size), 1)
    weights = LSTMWeights(from_reading, cell.weight_hh, layer.weight, layer.bias)
    inputs = x @ from_x.t() + cell.bias_ih + cell.bias_hh
    hidden, readings, last, _ = run_lstm(stack, inputs, weights, memory, state)
    for t in range(6):
        memory = cell(torch.cat([x[:, t], state.reading], 1), memory)
        state = stack.drive(state, memory[0], layer.weight, layer.bias)
        torch.testing.assert_close(hidden[:, t], memory[0])
        torch.testing.assert_close(readings[:, t], state.reading)
    torch.testing.assert_close(last, memory)


@every_stack
def test_an_lstm_goes_on_from_a_carried_state(stack: Stack[Any]) -> None:
    inputs, weights, memory = controller(stack, 2, 8)
    state = stack.start(2, dtype=torch.float64)
    hidden, _, last, _ = run_lstm(stack, inputs, weights, memory, state)
    parts = []
    for chunk in inputs.split((3, 0, 5), 1):
        part, _, memory, state = run_lstm(stack, chunk, weights, memory, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), hidden)
    torch.testing.assert_close(memory, last)


def test_errors_of_an_lstm() -> None:
    stack = Superposition(2)
    inputs, weights, memory = controller(stack, 2, 4)
    state = stack.start(2, dtype=torch.float64)
    with pytest.raises(NdstackError, match=r"hidden weights of shape \[3, 12\] given, expected"):
        run_lstm(stack, inputs, weights._replace(hidden=weights.hidden.t()), memory, state)
    with pytest.raises(NdstackError, match=r"h of shape \[1, 3\] given, expected \[2, 3\] for a batch of 2"):
        run_lstm(stack, inputs, weights, (memory[0][:1], memory[1]), state)
    with pytest.raises(NdstackError, match=r"inputs of shape \[2, 4, 11\] given, expected \[2, 4, 12\] for"):
        run_lstm(stack, inputs[..., 1:], weights, memory, state)
    with pytest.raises(NdstackError, match=r"inputs of shape \[2, 12\] given, expected \[2, length, 12\]"):
        run_lstm(stack, inputs[:, 0], weights, memory, state)
    with pytest.raises(NdstackError, match=r"inputs of shape \[2, 4, 12\] given, expected \[2, 12"):
        step_lstm(stack, inputs, weights, memory, state)
    elsewhere = weights._replace(control_bias=weights.control_bias.to("meta"))
    with pytest.raises(NdstackError, match="the controller is on meta, but the stack on cpu"):
        step_lstm(stack, inputs[:, 0], elsewhere, memory, state)


@pytest.mark.parametrize("size", [None, 3])
def test_a_carried_chart_that_float32_cannot_continue(
    size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first call lost in float32 matters in the second, which needs the chart in float64."""
    formats = []
    run = NondeterministicLSTM._run_in_float64

    def noted(*given: Any) -> Any:
        formats.append("float64")
        return run(*given)

    monkeypatch.setattr(NondeterministicLSTM, "_run_in_float64", noted)
    for seed, scale in ((0, 80), (7, 80), (2, 160), (6, 160)):
        torch.manual_seed(seed)
        net, x = StackRNN(3, 6, Nondeterministic(2, 3, size)), torch.randn(4, 40, 3)
        assert net.actions is not None
        with torch.no_grad():
            net.actions.weight *= scale
        first, state = net(x[:, :20])
        second, _ = net(x[:, 20:], state)
        wide = copy.deepcopy(net).double()
        expected, _ = wide(x.double())
        torch.testing.assert_close(torch.cat([first, second], 1).double(), expected, rtol=0, atol=2e-5)
        net.zero_grad()
        second.square().sum().backward()
        expected[:, 20:].square().sum().backward()
        for one, other in zip(net.parameters(), wide.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            limit = 2e-3 * max(1.0, other.grad.abs().max().item())  # noise, times 80 or 160 at each step
            torch.testing.assert_close(one.grad.double(), other.grad, rtol=0, atol=limit)
    assert len(formats) >= 1
