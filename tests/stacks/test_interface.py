"""What every stack promises its owner, whatever is inside."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.kernels import stratification as stratification_kernel
from ndstack.kernels import superposition as superposition_kernel
from ndstack.stacks import LSTMWeights, Several, Stack, State, Stratification, Superposition

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


@pytest.fixture(params=["compiled", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled operations and with those for other devices."""
    if request.param == "plain":
        for kernel in (stratification_kernel, superposition_kernel):
            monkeypatch.setattr(kernel, "compilable", lambda tensor: False)
    return str(request.param)


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
    for run in (stack.run_lstm, functools.partial(Stack._run_lstm, stack)):
        hidden, readings, last, state = run(inputs, weights, memory, start)
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
def test_the_lstm_is_torch_s_lstm_fed_with_readings(stack: Stack[Any]) -> None:
    cell = torch.nn.LSTMCell(2 + stack.reading_size, 5).double()
    layer = torch.nn.Linear(5, stack.control_size).double()
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    memory = torch.zeros(3, 5, dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
    state = stack.start(3, dtype=torch.float64)
    from_x, from_reading = cell.weight_ih.split((2, stack.reading_size), 1)
    weights = LSTMWeights(from_reading, cell.weight_hh, layer.weight, layer.bias)
    inputs = x @ from_x.t() + cell.bias_ih + cell.bias_hh
    hidden, readings, last, _ = stack.run_lstm(inputs, weights, memory, state)
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
    hidden, _, last, _ = stack.run_lstm(inputs, weights, memory, state)
    parts = []
    for chunk in inputs.split((3, 0, 5), 1):
        part, _, memory, state = stack.run_lstm(chunk, weights, memory, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), hidden)
    torch.testing.assert_close(memory, last)


def test_errors_of_an_lstm() -> None:
    stack = Superposition(2)
    inputs, weights, memory = controller(stack, 2, 4)
    state = stack.start(2, dtype=torch.float64)
    with pytest.raises(NdstackError, match=r"hidden weights of shape \[3, 12\] given, expected"):
        stack.run_lstm(inputs, weights._replace(hidden=weights.hidden.t()), memory, state)
    with pytest.raises(NdstackError, match=r"memory of shapes \[1, 3\] and \[2, 3\] given"):
        stack.run_lstm(inputs, weights, (memory[0][:1], memory[1]), state)
    with pytest.raises(NdstackError, match=r"inputs of shape \[2, 4, 11\] given, expected \[2, le"):
        stack.run_lstm(inputs[..., 1:], weights, memory, state)


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
        ((2, 5, 3), None, "takes 3 action logits and 6 pushed numbers a step"),
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


def test_the_layer_takes_the_dtype_of_the_state() -> None:
    for stack in (Stratification(4), Superposition(4)):
        layer = torch.nn.Linear(5, stack.control_size)
        hidden, state = torch.randn(2, 5), stack.start(2, dtype=torch.float64)
        ours = stack.drive(state, hidden, layer.weight, layer.bias).reading
        layer = layer.double()
        theirs = stack.drive(state, hidden.double(), layer.weight, layer.bias).reading
        torch.testing.assert_close(ours, theirs)


@dataclasses.dataclass(frozen=True, eq=False)
class CounterState(State):
    total: Tensor
    parts: tuple[State, ...]
    steps: int
    keeps_dtype: ClassVar[frozenset[str]] = frozenset({"total"})


class Counter(Stack[CounterState]):
    """A stack with the least that the interface asks for."""

    action_size, push_size, reading_size = 2, 0, 1

    def start(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> CounterState:
        reading = torch.zeros(batch_size, 1, dtype=dtype, device=device)
        return CounterState(reading, reading[:, 0].double(), (State(reading),), 0)

    def _step(self, state: CounterState, actions: Tensor, pushed: Tensor | None) -> CounterState:
        total = state.total + actions.sum(1)
        reading = total[:, None].to(actions.dtype)
        return CounterState(reading, total, (State(reading),), state.steps + 1)


def test_the_base_class_scans_and_drives_any_stack() -> None:
    stack = Counter()
    readings, state = stack.scan(torch.ones(2, 3, 2))
    assert readings[0, :, 0].tolist() == [2, 4, 6]
    assert state.steps == 3
    driven = stack.drive(state, torch.ones(2, 1), torch.ones(2, 1), torch.ones(2))
    assert driven.reading[0].item() == 10
    assert stack.scan(torch.ones(2, 0, 2))[0].shape == (2, 0, 1)
    with pytest.raises(NdstackError, match="takes 2 action logits and no pushed vector a step"):
        stack.scan(torch.ones(2, 3, 2), torch.ones(2, 3, 1))


def test_a_state_may_hold_states_and_numbers_that_keep_their_dtype() -> None:
    _, state = Counter().scan(torch.ones(2, 3, 2))
    half = state.to(dtype=torch.float16)
    assert half.reading.dtype == half.parts[0].reading.dtype == torch.float16
    assert half.total.dtype == torch.float64
    assert half.steps == 3
    assert state.select([1]).parts[0].reading.shape == (1, 1)


def test_several_stacks_must_agree_on_how_to_squash_what_is_pushed() -> None:
    with pytest.raises(NdstackError, match=r"\['sigmoid', 'tanh'\] given"):
        Several(Superposition(2), Stratification(2))
    with pytest.raises(NdstackError, match="at least one stack"):
        Several()
    assert Several(Counter(), Stratification(2)).push_activation == "tanh"


def test_several_stacks_read_what_each_reads() -> None:
    stacks = Stratification(2), Counter(), Stratification(3)
    together = Several(*stacks)
    actions, pushed = sequence(together, 2, 5)
    readings, _ = together(actions, pushed)
    first, _ = stacks[0](actions[..., :2], pushed[..., :2])
    second, _ = stacks[1](actions[..., 2:4])
    third, _ = stacks[2](actions[..., 4:], pushed[..., 2:])
    assert torch.equal(readings, torch.cat([first, second, third], -1))


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


def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stacks.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(examples) >= 5
    exec(compile("".join(examples), "stacks.md", "exec"), {})
