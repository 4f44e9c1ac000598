"""Stacks of fixed capacity: a step that is recorded once is right for all steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.ops.device_only import DeviceOnly
from tests.ops.test_precision import late_winner
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ndstack.errors import NdstackError
from ndstack.nn import RNNState, StackRNN
from ndstack.ops.lstm import cell
from ndstack.ops.nondeterministic import FixedChart
from ndstack.stacks import Nondeterministic, NondeterministicState

STACKS: dict[str, dict[str, Any]] = {
    "rns": {"states": 2, "symbols": 3},
    "ns": {"states": 2, "symbols": 2, "normalized": True, "read_states": False, "bottom_fix": False},
    "vrns": {"states": 3, "symbols": 2, "vector_size": 2},
    "window": {"states": 2, "symbols": 2, "vector_size": 2, "window": 3, "bottom_fix": False},
    "window of one step": {"states": 1, "symbols": 2, "window": 1},
}
every_stack = pytest.mark.parametrize("options", STACKS.values(), ids=STACKS.keys())


def drawn(stack: Nondeterministic, n: int, scale: float = 2.0) -> tuple[Tensor, Tensor | None]:
    torch.manual_seed(n)
    pushed = torch.rand(2, n, stack.push_size) if stack.push_size else None
    return scale * torch.randn(2, n, stack.action_size), pushed


def by_steps(stack: Nondeterministic, actions: Tensor, pushed: Tensor | None, capacity: int) -> Tensor:
    state = stack.start(len(actions), dtype=actions.dtype, capacity=capacity)
    readings = []
    for t in range(actions.shape[1]):
        state = stack.step(state, actions[:, t], None if pushed is None else pushed[:, t])
        readings.append(state.reading)
    assert isinstance(state.chart, FixedChart)
    assert state.chart.trusted.all()
    return torch.stack(readings, 1)


@every_stack
def test_steps_are_those_of_any_other_chart(options: dict[str, Any]) -> None:
    stack = Nondeterministic(**options).double()
    actions, pushed = (None if part is None else part.double() for part in drawn(stack, 9))
    assert actions is not None
    with torch.no_grad():
        expected, _ = stack.scan(actions, pushed)
        found = by_steps(stack, actions, pushed, 9)
    assert torch.allclose(found, expected, rtol=0, atol=1e-13)


def test_a_full_stack_forgets_like_one_with_a_window() -> None:
    stack, windowed = Nondeterministic(2, 2), Nondeterministic(2, 2, window=5)
    actions, _ = drawn(stack, 11)
    with torch.no_grad():
        expected, _ = windowed.scan(actions)
        assert torch.allclose(by_steps(stack, actions, None, 4), expected, rtol=0, atol=1e-6)


def fixed_start(network: StackRNN, capacity: int) -> RNNState:
    state, stack = network.start(2), network.stack
    assert isinstance(state, RNNState)
    assert isinstance(stack, Nondeterministic)
    return dataclasses.replace(state, stack=stack.start(2, capacity=capacity)).clone()


@every_stack
def test_a_recorded_step_of_a_network_is_right_for_all_steps(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded without a number being known, as a CUDA graph is, and replayed."""
    network = StackRNN(3, 4, Nondeterministic(**options), output_reading=True)
    x, start = torch.randn(2, 6, 1, 3), fixed_start(network, 6)

    def once(given: Tensor, *tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        output, new = network(given, start._map(lambda _: next(rest)))
        return [output, *new._tensors()]

    with torch.no_grad():
        expected, _ = network(x[:, :, 0])
        monkeypatch.setattr(cell, "compilable", lambda tensor: False)
        graph = make_fx(once, tracing_mode="fake", _allow_non_fake_inputs=True)(x[:, 0], *start._tensors())
        now, outputs = start._tensors(), []
        with DeviceOnly():
            for t in range(6):
                output, *now = graph(x[:, t], *now)
                outputs.append(output)
    assert torch.allclose(torch.cat(outputs, 1), expected, rtol=0, atol=1e-6)


def test_torch_compile_takes_a_step_of_a_network_whole_and_only_once() -> None:
    network = StackRNN(3, 4, Nondeterministic(2, 2, 2))
    x, state = torch.randn(2, 5, 3), fixed_start(network, 5)
    torch.compiler.reset()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    outputs = []
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True, error_on_recompile=True):
        expected, _ = network(x)
        for t in range(5):
            output, state = compiled(x[:, t : t + 1], state)
            outputs.append(output)
    assert torch.allclose(torch.cat(outputs, 1), expected, rtol=0, atol=1e-6)


def test_a_state_keeps_its_memory_while_steps_are_copied_into_it() -> None:
    network = StackRNN(3, 4, Nondeterministic(2, 2, 2))
    x, state = torch.randn(2, 4, 3), fixed_start(network, 4)
    places = [tensor.data_ptr() for tensor in state._tensors()]
    with torch.no_grad():
        expected, _ = network(x)
        for t in range(4):
            output, new = network(x[:, t : t + 1], state)
            state.copy_(new)
            assert torch.allclose(output[:, 0], expected[:, t], rtol=0, atol=1e-6)
        with pytest.raises(NdstackError, match="a state of other shapes"):
            state.copy_(fixed_start(network, 5))
    assert [tensor.data_ptr() for tensor in state._tensors()] == places
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("nats, fine", [(120.0, True), (900.0, False)])
def test_what_was_lost_is_noted(nats: float, fine: bool) -> None:
    joined = torch.cat([action.flatten(2) for action in late_winner(nats, 3, torch.float64)], -1)
    stack = Nondeterministic(1, 4)
    state = stack.start(1, dtype=torch.float64, capacity=8)
    for action in joined.detach().unbind(1):
        state = stack.step(state, action)
    assert isinstance(state.chart, FixedChart)
    assert state.chart.trusted.all() == fine
    if fine:
        assert torch.allclose(state.reading, stack.scan(joined)[0][:, -1], rtol=1e-9, atol=0)


def test_a_nan_stays_in_its_sequence() -> None:
    stack = Nondeterministic(2, 2, 2)
    actions, pushed = drawn(stack, 4)
    assert pushed is not None
    pushed[0, 1, 0] = torch.nan
    state = stack.start(2, capacity=4)
    for t in range(4):
        state = stack.step(state, actions[:, t], pushed[:, t])
        assert state.reading[0].isnan().all() == (t > 0)
        assert state.reading[1].isfinite().all()


def test_there_are_no_derivatives_and_nothing_of_other_sizes() -> None:
    stack = Nondeterministic(2, 2)
    state = stack.start(1, capacity=3)
    assert isinstance(state, NondeterministicState)
    with pytest.raises(NdstackError, match=r"no derivatives; use torch.no_grad\(\)"):
        stack.step(state, torch.zeros(1, stack.action_size, requires_grad=True))
    with pytest.raises(NdstackError, match="a stack of other sizes"):
        Nondeterministic(2, 2, bottom_fix=False).step(state, torch.zeros(1, stack.action_size))
    with pytest.raises(NdstackError, match="capacity is 0"):
        stack.start(1, capacity=0)
