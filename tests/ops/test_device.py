"""The portable backend as a GPU would run it: nothing leaves the device within a step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.device_only import DeviceOnly
from tests.ops.test_precision import assert_late_winner_read, late_winner
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel, RNNState, StackAttention, StackRNN, beam_search
from ndstack.nn.storage.states import pack_state, unpack_state
from ndstack.ops.nondeterministic import precision_guard
from ndstack.ops.nondeterministic.portable import steps
from ndstack.ops.nondeterministic.portable.chart import DeviceChart
from ndstack.ops.runtime import backends, devices
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition, nondeterministic

STACKS = {
    "rns": {"states": 2, "symbols": 3},
    "ns": {"states": 2, "symbols": 2, "normalized": True, "read_states": False, "bottom_fix": False},
    "vrns": {"states": 2, "symbols": 2, "vector_size": 3},
    "window": {"states": 2, "symbols": 2, "vector_size": 2, "window": 4},
}
every_stack = pytest.mark.parametrize("options", STACKS.values(), ids=STACKS.keys())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """As on a GPU; lists how often the guard looks at its flags, which is not an operation of a step."""
    made: list[int] = []
    plain = precision_guard.places

    def places(flags: Tensor) -> Tensor:
        made.append(len(flags))
        with torch.utils._python_dispatch._disable_current_modes():
            return plain(flags) if not flags.is_meta else torch.empty(0, dtype=torch.long, device="meta")

    for module in (precision_guard, steps):
        monkeypatch.setattr(module, "places", places)
    monkeypatch.setattr(devices, "on_host", lambda tensor: False)
    with backends.using("portable"):
        yield made


def given_to(stack: Stack[Any], batch: int, n: int, device: str = "cpu") -> list[Tensor]:
    sizes = [stack.action_size, *([stack.push_size] if stack.push_size else [])]
    return [torch.randn(batch, n, size, device=device, requires_grad=True) for size in sizes]


@every_stack
def test_a_scan_looks_once_on_each_way(options: dict[str, Any], looks: list[int]) -> None:
    stack = Nondeterministic(**options)
    given = given_to(stack, 2, 20)
    with DeviceOnly():
        readings, state = stack.scan(*given)
        readings.square().sum().backward()
    assert isinstance(state.chart, DeviceChart)
    assert len(looks) == 1
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in given)


@every_stack
def test_a_training_step_of_a_network_looks_once(options: dict[str, Any], looks: list[int]) -> None:
    network = StackRNN(3, 4, Nondeterministic(**options))
    optimizer = torch.optim.Adam(network.parameters())
    x = torch.randn(2, 9, 3)
    with DeviceOnly():
        for _ in range(2):
            output, state = network(x)
            optimizer.zero_grad()
            output.square().sum().backward()
            for parameter in network.parameters():
                parameter.data -= 0.1 * parameter.grad
    assert len(looks) == 2
    assert state.stack.chart.time <= 9


@every_stack
def test_streams_in_chunks_and_single_steps_stay_on_the_device(
    options: dict[str, Any], looks: list[int]
) -> None:
    network = StackRNN(3, 4, Nondeterministic(**options))
    x = torch.randn(2, 16, 3)
    with DeviceOnly():
        state = None
        for part in x.split([6, 6, 1, 1, 1, 1], 1):
            output, state = network(part, state)
            output.square().sum().backward()
            state = state.detach()
    assert len(looks) == 2  # for the two chunks; single steps are looked at now and then


@every_stack
def test_stack_attention_stays_on_the_device(options: dict[str, Any], looks: list[int]) -> None:
    layer = StackAttention(4, Nondeterministic(**options))
    with DeviceOnly():
        y, state = layer(torch.randn(2, 7, 4))
        z, _ = layer(torch.randn(2, 1, 4), state)
        (y.sum() + z.sum()).backward()
    assert len(looks) == 1


@pytest.mark.parametrize("stack", [Superposition(3), Superposition((2, 3), depth=4), Stratification(3)])
def test_deterministic_stacks_stay_on_the_device(
    stack: Stack[Any], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("superposition", "stratification"):
        monkeypatch.setattr(f"ndstack.ops.{name}.compilable", lambda tensor: False)
    given = given_to(stack, 2, 6)
    with DeviceOnly():
        readings, state = stack.scan(*given)
        state = stack.step(state, *(part[:, 0] for part in given))
        (readings.sum() + state.reading.sum()).backward()
    assert not looks


@every_stack
def test_no_number_is_needed_to_know_the_shapes(options: dict[str, Any], looks: list[int]) -> None:
    """Tensors on meta have no numbers at all."""
    stack = Nondeterministic(**options).to("meta")
    given = given_to(stack, 2, 20, "meta")
    readings, state = stack.scan(*given)
    for t in range(3):
        state = stack.step(state, *(part[:, t] for part in given))
    assert readings.shape == (2, 20, stack.reading_size)
    assert readings.is_meta
    assert state.time == 23
    (readings.sum() + state.reading.sum()).backward()
    assert given[0].grad is not None
    assert given[0].grad.is_meta


def test_single_steps_are_looked_at_now_and_then(looks: list[int]) -> None:
    stack = Nondeterministic(1, 2)
    state = stack.start(1)
    actions = torch.randn(1, stack.action_size)
    with torch.no_grad(), DeviceOnly():
        for _ in range(2 * steps.WATCH):
            state = stack.step(state, actions)
    assert len(looks) == 2


def test_long_sequences_of_windowed_stacks_go_by_pieces(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    network, x = StackRNN(3, 4, Nondeterministic(2, 2, 2, window=3)), torch.randn(2, 14, 3)
    with backends.using("cpu"), torch.no_grad():
        expected, _ = network(x)
    monkeypatch.setattr(Nondeterministic, "span", 4)
    output, state = network(x)
    assert torch.allclose(output, expected, rtol=0, atol=1e-6)
    assert state.stack.chart.store.times < 14
    assert len(looks) == 4
    output.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_generation_is_the_same_as_on_the_cpu(looks: list[int]) -> None:
    torch.manual_seed(0)
    model = LanguageModel(StackRNN(3, 5, Nondeterministic(2, 2)), "abc")
    found = beam_search(model, ["", "ab"], max_length=8, width=3)
    with backends.using("cpu"):
        expected = beam_search(model, ["", "ab"], max_length=8, width=3)
    assert [[one.word for one in beam] for beam in found] == [[one.word for one in beam] for beam in expected]


@pytest.mark.parametrize("options", [STACKS["rns"], STACKS["window"]], ids=["rns", "window"])
def test_a_model_that_generates_looks_at_nothing(
    options: dict[str, Any], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever chooses symbols has to look at probabilities, but no call of the network does."""
    plain, calls = StackRNN.forward, []

    def forward(self: StackRNN, *given: Any) -> Any:
        calls.append(given[0].shape[1])
        with DeviceOnly():
            return plain(self, *given)

    torch.manual_seed(1)
    model = LanguageModel(StackRNN(3, 5, Nondeterministic(**options)), "abc")
    monkeypatch.setattr(StackRNN, "forward", forward)
    found = beam_search(model, ["", "ab"], max_length=9, width=2)
    assert len(found) == 2
    assert calls.count(1) > 3
    assert len(looks) == sum(n > 1 for n in calls)  # for a prefix of several symbols, once


def test_a_chart_stays_in_float32_in_mixed_precision(looks: list[int]) -> None:
    network = StackRNN(3, 4, Nondeterministic(2, 2))
    x = torch.randn(2, 5, 3)
    exact, _ = network(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = network(x)
        again, _ = network(x[:, :1], state)
    assert state.stack.chart.dtype == torch.float32
    assert again.isfinite().all()
    assert torch.allclose(output.float(), exact, atol=0.05)


def test_states_survive_files(looks: list[int]) -> None:
    for options in STACKS.values():
        network = StackRNN(3, 4, Nondeterministic(**options))
        x = torch.randn(2, 9, 3)
        with torch.no_grad():
            _, state = network(x)
            restored = unpack_state(pack_state(state))
            assert isinstance(restored, RNNState)
            assert isinstance(restored.stack.chart, DeviceChart)
            for ours, theirs in zip(network(x, restored)[0], network(x, state)[0], strict=True):
                assert torch.equal(ours, theirs)


def test_forged_charts_are_refused(looks: list[int]) -> None:
    network = StackRNN(3, 4, Nondeterministic(2, 2))
    _, state = network(torch.randn(2, 5, 3))
    packed = pack_state(state)
    structure = json.loads(bytes(packed["structure"].tolist()))
    chart = structure["fields"]["stack"]["fields"]["chart"]["device_chart"]
    for name, value in (
        ("time", 40),
        ("time", "x"),
        ("automaton", [2, 10**9, None, True]),
        ("automaton", [2]),
    ):
        forged = chart[name], value
        chart[name] = value
        text = torch.frombuffer(bytearray(json.dumps(structure).encode()), dtype=torch.uint8)
        with pytest.raises(NdstackError, match="not the state of a network"):
            unpack_state(packed | {"structure": text})
        chart[name] = forged[0]


def test_products_have_all_digits_whatever_is_allowed_elsewhere() -> None:
    module = torch.backends.cuda.matmul
    module.allow_tf32 = True
    try:
        with devices.full_float32(torch.device("cuda")):
            assert module.fp32_precision == "ieee"
        assert module.allow_tf32
    finally:
        module.allow_tf32 = False


@pytest.mark.parametrize("nats", [50.0, 120.0, 800.0])
@pytest.mark.parametrize("chunks", [[7], [3, 4], [2, 2, 3]], ids=str)
def test_chunks_that_lose_too_much_are_computed_again(nats: float, chunks: list[int]) -> None:
    actions = late_winner(nats, 3, torch.float32)
    stack, readings = Nondeterministic(1, 4), []
    state = stack.start(1)
    joined = torch.cat([action.flatten(2) for action in actions], -1)
    with backends.using("portable"):
        for part in joined.split(chunks, 1):
            reading, state = stack.scan(part, state=state)
            readings.append(reading)
    assert_late_winner_read(torch.cat(readings, 1), actions, nats)


@pytest.mark.parametrize("nats", [120.0, 800.0])
def test_single_steps_that_lose_too_much_are_said_to(nats: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "WATCH", 1)
    actions = late_winner(nats, 3, torch.float32)
    stack = Nondeterministic(1, 4)

    def by_steps() -> Tensor:
        state, readings = stack.start(1), []
        for t in range(7):
            state = stack.step(state, torch.cat([action[:, t].flatten(1) for action in actions], -1))
            readings.append(state.reading)
        return torch.stack(readings, 1)

    with backends.using("portable"), pytest.warns(RuntimeWarning, match="float32 loses runs"):
        readings = by_steps()
    assert_late_winner_read(readings, actions, nats)


def test_a_windowed_stream_that_has_lost_runs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nondeterministic, "_REMEMBERED_STEPS", 256)
    stack = Nondeterministic(1, 3, window=3)
    state = stack.start(1)
    actions = torch.randn(1, 300, stack.action_size)
    with backends.using("portable"), torch.no_grad():
        _, state = stack.scan(actions, state=state)
        assert not state.complete
        far_apart = 1000 * torch.randn(1, 40, stack.action_size)
        with pytest.warns(RuntimeWarning, match="float64 loses runs"):
            stack.scan(far_apart, state=state)
