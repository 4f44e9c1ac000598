"""The nondeterministic stack behind the common interface: sizes, states, chunks, controllers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.functional.nondeterministic import nondeterministic
from ndstack.nn.fused import FusedLSTM, LSTMWeights, run_lstm
from ndstack.ops.nondeterministic import Chart, DeviceChart
from ndstack.ops.runtime import backends
from ndstack.stacks.base import Stack
from ndstack.stacks.nondeterministic import Nondeterministic, NondeterministicState

MODELS: dict[str, dict[str, Any]] = {
    "ns": {"normalized": True, "read_states": False, "bottom_fix": False},
    "ns+s": {"normalized": True},
    "ns+u": {"read_states": False},
    "rns": {},
    "vrns": {"vector_size": 3},
    "rns, window": {"window": 4},
    "vrns, window": {"window": 3, "vector_size": 2},
    "window of one": {"window": 1, "vector_size": 1},
}
every_model = pytest.mark.parametrize("options", MODELS.values(), ids=MODELS.keys())


def sequence(stack: Stack[Any], batch: int, n: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(n)
    sizes = [stack.action_size] + [stack.push_size] * bool(stack.push_size)
    return [torch.randn(batch, n, size, generator=generator).to(dtype).requires_grad_() for size in sizes]


def inputs_of(stack: Nondeterministic, given: list[Tensor]) -> list[Tensor]:
    return given if stack.bottom is None else [*given, stack.bottom]


def derivatives(readings: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, readings.numel(), dtype=torch.float64).view(readings.shape)
    return list(torch.autograd.grad((readings * weights).sum(), inputs))


def by_functional(stack: Nondeterministic, given: list[Tensor]) -> Tensor:
    """The readings, from the definition of the models and `functional.nondeterministic`."""
    q, s = stack.states, stack.symbols
    batch, n = given[0].shape[:2]
    sizes = [q * s * q * s, q * s * q * s, q * s * q]
    push, replace, pop = (part.reshape(batch, n, q, s, -1) for part in torch.split(given[0], sizes, -1))
    if stack.normalized:
        joined = torch.cat([push, replace, pop], -1).log_softmax(-1)
        push, replace, pop = torch.split(joined, [q * s, q * s, q], -1)
    options: dict[str, Any] = {"window": stack.window, "bottom_fix": stack.bottom_fix}
    if stack.bottom is not None:
        bottom = stack.bottom.sigmoid().to(given[1])
        options |= {"vectors": given[1], "bottom": bottom}
    shape = (batch, n, q, s, q, s)
    reading = nondeterministic(
        push.reshape(shape), replace.reshape(shape), pop, **options, backend="reference"
    )
    assert isinstance(reading, Tensor)
    return (reading if stack.read_states else reading.sum(2)).flatten(2)


@every_model
def test_sizes_and_first_reading(options: dict[str, Any]) -> None:
    stack = Nondeterministic(2, 3, **options)
    assert stack.action_size == 6 * 2 * (2 * 3 + 1)
    assert stack.push_size == options.get("vector_size", 0)
    kinds = 6 if options.get("read_states", True) else 3
    assert stack.reading_size == kinds * max(1, stack.push_size)
    reading = stack.start(2).reading
    first = max(1, stack.push_size)
    assert reading.shape == (2, stack.reading_size)
    assert (reading[:, :first] == (0.5 if stack.push_size else 1.0)).all()
    assert (reading[:, first:] == 0).all()


@every_model
def test_scan_computes_the_model(options: dict[str, Any]) -> None:
    stack = Nondeterministic(2, 3, **options)
    given = sequence(stack, 2, 11, torch.float64)
    expected = by_functional(stack, given)
    readings, state = stack.scan(*given)
    assert torch.allclose(readings, expected, atol=1e-12)
    assert torch.equal(state.reading, readings[:, -1])
    inputs = inputs_of(stack, given)
    for ours, theirs in zip(derivatives(readings, inputs), derivatives(expected, inputs), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-10)


@pytest.mark.compiled
@every_model
@pytest.mark.parametrize("chunks", [[1] * 41, [20, 1, 20], [1, 39, 1]], ids=["steps", "three", "ends"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_chunks_equal_one_long_execution(
    options: dict[str, Any], chunks: list[int], dtype: torch.dtype
) -> None:
    stack = Nondeterministic(2, 2, **options)
    given = sequence(stack, 2, 41, dtype)
    whole, last = stack.scan(*given)
    state = stack.start(2, dtype=dtype)
    readings, first = [], 0
    for size in chunks:
        part = [tensor[:, first : first + size] for tensor in given]
        reading, state = stack.scan(*part, state=state)
        readings.append(reading)
        first += size
    joined = torch.cat(readings, 1)
    if stack.push_size:
        assert torch.allclose(joined, whole, rtol=0, atol=1e-15 if dtype == torch.float64 else 2e-7)
    else:
        assert torch.equal(joined, whole)
    assert state.time == last.time == 41
    inputs = inputs_of(stack, given)
    for ours, theirs in zip(derivatives(joined, inputs), derivatives(whole, inputs), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5 if dtype == torch.float32 else 1e-11)


@every_model
def test_a_state_can_be_detached_selected_and_branched_from(options: dict[str, Any]) -> None:
    stack = Nondeterministic(2, 2, **options)
    given = sequence(stack, 3, 12, torch.float64)
    whole, _ = stack.scan(*given)
    _, state = stack.scan(*(tensor[:, :10] for tensor in given))

    def step(state: NondeterministicState, t: int, rows: Any = slice(None)) -> NondeterministicState:
        return stack.step(state, *(tensor[rows, t] for tensor in given))

    other = step(state, 3)
    after = step(step(state, 10), 11)
    assert torch.allclose(after.reading, whole[:, 11], atol=1e-14)
    again = step(state, 3)
    assert torch.allclose(again.reading, other.reading, atol=1e-14)

    rows = [2, 0, 2]
    chosen = step(step(state.select(rows), 10, rows), 11, rows)
    assert torch.allclose(chosen.reading, whole[rows, 11], atol=1e-14)

    cut = step(state.detach(), 10)
    (grad,) = torch.autograd.grad(cut.reading.square().sum(), given[0])
    assert (grad[:, :10] == 0).all()
    assert (grad[:, 10] != 0).any()


@every_model
def test_gradients_of_branches_add_up(options: dict[str, Any]) -> None:
    stack = Nondeterministic(2, 2, **options)
    given = sequence(stack, 2, 9, torch.float64)
    inputs = inputs_of(stack, given)

    def branch(order: list[int]) -> Tensor:
        parts = [tensor[:, order] for tensor in given]
        return stack.scan(*parts)[0][:, -1].square().sum()

    separate = branch([*range(7), 7]) + branch([*range(7), 8, 7])
    _, state = stack.scan(*(tensor[:, :7] for tensor in given))
    one = stack.step(state, *(tensor[:, 7] for tensor in given))
    two = stack.step(state, *(tensor[:, 8] for tensor in given))
    two = stack.step(two, *(tensor[:, 7] for tensor in given))
    joint = one.reading.square().sum() + two.reading.square().sum()
    for ours, theirs in zip(
        torch.autograd.grad(joint, inputs), torch.autograd.grad(separate, inputs), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-12)


def controller(stack: Stack[Any], units: int, dtype: torch.dtype, scale: float) -> LSTMWeights:
    generator = torch.Generator().manual_seed(units)
    shapes = [
        (4 * units, stack.reading_size),
        (4 * units, units),
        (stack.control_size, units),
        (stack.control_size,),
    ]
    tensors = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]
    for tensor in tensors[2:]:
        tensor[: stack.action_size] *= scale
    return LSTMWeights(*(tensor.requires_grad_() for tensor in tensors))


@every_model
@pytest.mark.parametrize("scale", [1.0, 100.0], ids=["tame", "wild"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_the_fused_lstm_equals_the_steps(options: dict[str, Any], scale: float, dtype: torch.dtype) -> None:
    stack = Nondeterministic(2, 2, **options)
    weights = controller(stack, 5, torch.float64, scale)
    inputs = torch.randn(2, 13, 20, dtype=torch.float64, requires_grad=True)
    memory = tuple(torch.randn(2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    leaves = [inputs, *weights, *memory] + ([] if stack.bottom is None else [stack.bottom])

    def outputs(fused: bool, dtype: torch.dtype) -> list[Tensor]:
        cast = LSTMWeights(*(weight.to(dtype) for weight in weights))
        run = run_lstm if fused else FusedLSTM().run
        hidden, readings, (h, c), state = run(
            stack, inputs.to(dtype), cast, (memory[0].to(dtype), memory[1].to(dtype)),
            stack.start(2, dtype=dtype),
        )  # fmt: skip
        further = stack.step(
            state,
            torch.ones(2, stack.action_size, dtype=dtype).tril(),
            torch.ones(2, stack.push_size, dtype=dtype) if stack.push_size else None,
        )
        return [hidden, readings, h, c, further.reading]

    exact, ours = outputs(False, torch.float64), outputs(True, dtype)
    # A wild controller doubles rounding errors at every step, the same for any implementation.
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5 if scale == 1.0 else 1e-2
    for one, other in zip(ours, exact, strict=True):
        assert torch.allclose(one.double(), other, atol=tolerance)
    if dtype == torch.float32 and scale > 1.0:
        return
    grads = [
        torch.autograd.grad(sum(o.double().square().sum() for o in some), leaves) for some in (ours, exact)
    ]
    for one, other in zip(*grads, strict=True):
        assert torch.allclose(one, other, rtol=10 * tolerance, atol=tolerance * other.abs().max().item())


@every_model
def test_the_fused_lstm_carries_its_state_on(options: dict[str, Any]) -> None:
    stack = Nondeterministic(2, 2, **options)
    weights = controller(stack, 5, torch.float64, 1.0)
    inputs = torch.randn(2, 30, 20, dtype=torch.float64)
    memory = (torch.zeros(2, 5, dtype=torch.float64),) * 2
    whole = run_lstm(stack, inputs, weights, memory, stack.start(2, dtype=torch.float64))
    state, kept = stack.start(2, dtype=torch.float64), []
    for part in inputs.split([9, 1, 20], dim=1):
        hidden, _, memory, state = run_lstm(stack, part, weights, memory, state)
        memory, state = (memory[0].detach(), memory[1].detach()), state.detach()
        kept.append(hidden)
    assert torch.allclose(torch.cat(kept, 1), whole[0], atol=1e-12)


@every_model
def test_derivatives_reach_the_charts_of_earlier_fused_runs(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts and at once the same, also for a branch; no part falls back to single steps."""
    stack = Nondeterministic(2, 2, **options)
    weights = controller(stack, 5, torch.float64, 1.0)
    inputs = torch.randn(2, 24, 20, dtype=torch.float64, requires_grad=True)
    leaves = [inputs, *weights]
    zeros = (torch.zeros(2, 5, dtype=torch.float64),) * 2

    def run(lengths: list[int]) -> list[Any]:
        memory, state, kept = zeros, stack.start(2, dtype=torch.float64), []
        for part in inputs[:, : sum(lengths)].split(lengths, dim=1):
            done = run_lstm(stack, part, weights, memory, state)
            memory, state = done.lstm_state, done.state
            kept.append(done)
        return kept

    def total(*hidden: Tensor) -> Tensor:
        parts = [(h * torch.linspace(-1, 1, h.numel()).view_as(h)).sum() for h in hidden]
        return torch.stack(parts).sum()

    whole = run([24])[0]
    expected = torch.autograd.grad(total(whole.hidden) + whole.state.reading.square().sum(), leaves)
    monkeypatch.setattr(FusedLSTM, "run", None)  # which would take single steps
    parts = run([9, 2, 13])
    joined = total(torch.cat([part.hidden for part in parts], 1)) + parts[-1].state.reading.square().sum()
    for ours, theirs in zip(torch.autograd.grad(joined, leaves), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    first = run([9])[0]
    both = [run_lstm(stack, inputs[:, 9:n], weights, first.lstm_state, first.state).hidden for n in (15, 24)]
    branched = torch.autograd.grad(total(*both), leaves)
    apart = [torch.cat([part.hidden for part in run([n])], 1)[:, 9:] for n in (15, 24)]
    for ours, theirs in zip(branched, torch.autograd.grad(total(*apart), leaves), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.compiled
def test_a_windowed_stack_runs_on_in_constant_memory() -> None:
    stack = Nondeterministic(1, 2, window=5, vector_size=1)
    actions, pushed = sequence(stack, 1, 2000, torch.float32)
    with torch.no_grad():
        whole, _ = stack.scan(actions, pushed)
        state = stack.start(1)
        sizes = []
        for t in range(2000):
            state = stack.step(state, actions[:, t], pushed[:, t])
            held = [*state.chart.tensors, *state.history, state.vectors]
            sizes.append(sum(tensor.numel() for tensor in held if tensor is not None))
            assert torch.allclose(state.reading, whole[:, t], atol=1e-6)
    assert max(sizes[1500:]) <= max(sizes[:1100])


@pytest.mark.parametrize("n", [600, 1400])
def test_a_windowed_stack_warns_where_it_cannot_go_back(n: int) -> None:
    """A branch falls 2,000 nats behind and is the only one to survive, early and late."""
    push, replace = (torch.full((1, n, 1, 3, 1, 3), -torch.inf) for _ in range(2))
    pop = torch.full((1, n, 1, 3, 1), -torch.inf)
    push[0, :-4, 0, 0, 0, 0] = 0.0
    replace[0, -4, 0, 0, 0, 1:] = torch.tensor([0.0, -2000.0])
    push[0, -3, 0, 1:, 0, 0] = 0.0
    pop[0, -2, 0, 0, 0] = 0.0
    replace[0, -1, 0, 2, 0, 2] = 0.0
    stack = Nondeterministic(1, 3, window=9)
    actions = torch.cat([part.flatten(2) for part in (push, replace, pop)], -1)
    if n > 1024:
        with pytest.warns(RuntimeWarning, match="float64 loses runs"):
            readings, _ = stack.scan(actions)
        assert readings.isfinite().all()
    else:
        readings, _ = stack.scan(actions)
        assert readings[0, -1].tolist() == [0.0, 0.0, 1.0]


@every_model
@pytest.mark.parametrize("first_by", ["cpu", "portable"])
def test_a_sequence_begun_by_one_backend_goes_on_by_another(options: dict[str, Any], first_by: str) -> None:
    """A chart is continued by what made it."""
    stack = Nondeterministic(2, 2, **options)
    given = sequence(stack, 2, 12, torch.float64)
    inputs = inputs_of(stack, given)
    whole, _ = stack.scan(*given)
    with backends.using(first_by):
        first, state = stack.scan(*(tensor[:, :9] for tensor in given))
    assert isinstance(state.chart, Chart if first_by == "cpu" else DeviceChart)
    with backends.using("cpu" if first_by == "portable" else "portable"):
        second, state = stack.scan(*(tensor[:, 9:11] for tensor in given), state=state)
        third = stack.step(state, *(tensor[:, 11] for tensor in given)).reading[:, None]
    joined = torch.cat([first, second, third], 1)
    assert torch.allclose(joined, whole, atol=1e-12)
    for ours, theirs in zip(derivatives(joined, inputs), derivatives(whole, inputs), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-11)


def test_moving_a_state_keeps_its_chart_in_float64() -> None:
    stack = Nondeterministic(2, 2, window=4)
    given = sequence(stack, 1, 8, torch.float64)
    _, state = stack.scan(*(tensor[:, :7] for tensor in given))
    moved = state.to(dtype=torch.float32)
    assert moved.reading.dtype == torch.float32
    assert moved.chart.dtype == torch.float64
    after = stack.step(moved, given[0][:, 7])
    assert after.reading.dtype == torch.float32


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"states": 0, "symbols": 2}, "states is 0"),
        ({"states": 1, "symbols": 0}, "symbols is 0"),
        ({"states": 1, "symbols": 1, "vector_size": 0}, "vector_size is 0"),
        ({"states": 1, "symbols": 1, "window": 0}, "window is 0"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(NdstackError, match=message):
        Nondeterministic(**arguments)
