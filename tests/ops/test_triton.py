"""The Triton kernels against the others, values and every gradient; interpreted where there is no GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.random_automata import assert_near
from tests.ops.test_backends import run
from tests.ops.test_precision import assert_late_winner_read, late_winner
from torch import Tensor

import ndstack
from ndstack.errors import NdstackError
from ndstack.functional import nondeterministic
from ndstack.nn import StackRNN
from ndstack.ops.nondeterministic import DeviceChart
from ndstack.ops.nondeterministic.portable import forward
from ndstack.ops.runtime import backends, triton_launch
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition

pytest.importorskip("triton")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.mark.parametrize(
    "sizes, window, fix, dtype",
    [
        ((1, 9, 2, 2), None, True, torch.float64),
        ((2, 5, 1, 3), None, False, torch.float32),
        ((1, 7, 2, 1), 3, True, torch.float64),
        ((1, 4, 3, 2), 2, False, torch.float32),
    ],
    ids=str,
)
def test_scans_agree_with_the_reference(
    sizes: tuple[int, ...], window: int | None, fix: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "BLOCK", 4)
    monkeypatch.setattr(forward, "STRIP", 2)
    case = {"sizes": sizes, "scale": 1.0, "zeros": 0.1, "window": window, "bottom_fix": fix}
    case |= {"vectors": 2, "attention": True, "seed": 4}
    expected = run(case, "reference", torch.float64)
    for actual, wanted in zip(run(case, "triton", dtype), expected, strict=True):
        assert_near(actual, wanted, TOLERANCE[dtype])


def test_a_branch_far_behind_is_not_lost() -> None:
    nats = 120.0
    actions = late_winner(nats, 1, torch.float32)
    readings = nondeterministic(*actions, backend="triton")
    assert isinstance(readings, Tensor)
    assert_late_winner_read(readings, actions, nats)


def network_results(
    network: StackRNN, x: Tensor, chunks: list[int]
) -> tuple[list[Tensor], list[Tensor], Any]:
    """Outputs, derivatives by the input and all parameters, and the last state."""
    given, state, outputs = x.clone().requires_grad_(), None, []
    for part in given.split(chunks, 1):
        output, state = network(part, state)
        outputs.append(output)
    output = torch.cat(outputs, 1)
    weights = torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape).sin()
    grads = torch.autograd.grad((output * weights).sum(), [given, *network.parameters()])
    return [output], list(grads), state


@pytest.mark.parametrize(
    "options, units, chunks, dtype",
    [
        ({"states": 2, "symbols": 2}, 3, [3, 1, 1], torch.float64),
        ({"states": 1, "symbols": 3, "vector_size": 2}, 5, [5], torch.float32),
        ({"states": 2, "symbols": 2, "vector_size": 3, "bottom_fix": False}, 3, [2, 3], torch.float64),
        ({"states": 2, "symbols": 2, "normalized": True, "read_states": False}, 2, [5], torch.float32),
        (
            {"states": 3, "symbols": 1, "normalized": True, "read_states": False, "bottom_fix": False},
            *(2, [2, 3], torch.float64),
        ),
        ({"states": 2, "symbols": 2, "window": 3}, 2, [4, 2], torch.float32),
        (
            {"states": 1, "symbols": 2, "window": 2, "vector_size": 2, "bottom_fix": False},
            *(2, [3, 3], torch.float64),
        ),
    ],
    ids=["rns", "vrns", "vrns, chapter 4", "ns", "ns, chapter 4", "window", "window, vectors"],
)
def test_networks_run_as_one_kernel(
    options: dict[str, Any], units: int, chunks: list[int], dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    network = StackRNN(3, units, Nondeterministic(**options), output_reading=True).to(dtype)
    x = torch.randn(2 if units == 3 else 1, sum(chunks), 3, dtype=dtype)
    expected = network_results(network, x, chunks)
    with backends.using("triton"):
        found = network_results(network, x, chunks)
    assert isinstance(found[2].stack.chart, DeviceChart)
    assert found[2].stack.chart.trusted.all()
    for actual, wanted in zip(found[:2], expected[:2], strict=True):
        assert_near(actual, wanted, TOLERANCE[dtype])


def test_networks_whose_weights_are_far_apart_are_computed_again() -> None:
    torch.manual_seed(2)
    network = StackRNN(2, 3, Nondeterministic(1, 2))
    assert network.actions is not None
    network.actions.weight.data *= 1000
    x = torch.randn(2, 4, 2)
    expected = network_results(network, x, [4])
    with backends.using("triton"):
        found = network_results(network, x, [4])
    for actual, wanted in zip(found[:2], expected[:2], strict=True):
        assert_near(actual, wanted, 1e-4)


@pytest.mark.filterwarnings("ignore:(All-NaN|invalid value)")  # numpy, as the interpreter
def test_a_nan_makes_its_sequence_nan_and_no_other() -> None:
    torch.manual_seed(3)
    network = StackRNN(2, 3, Nondeterministic(1, 2, 2))
    x = torch.randn(2, 5, 2)
    x[0, 2, 0] = torch.nan
    with backends.using("triton"), torch.no_grad():
        output, state = network(x)
    assert output[0, 2:].isnan().all()
    assert output[0, :2].isfinite().all()
    assert output[1].isfinite().all()
    assert state.stack.reading[0].isnan().all()


@pytest.mark.parametrize(
    "stack, first",
    [(Superposition(3), 0), (Superposition(2, depth=3), 4), (Stratification(2), 0), (Stratification(3), 3)],
    ids=str,
)
def test_deterministic_stacks(stack: Stack[Any], first: int) -> None:
    torch.manual_seed(4)
    sizes = (stack.action_size, stack.push_size)
    before = [torch.randn(2, first, size, dtype=torch.float64) for size in sizes]
    given = [torch.randn(2, 7, size, dtype=torch.float64, requires_grad=True) for size in sizes]

    def results() -> tuple[list[Tensor], list[Tensor]]:
        state = stack.scan(*before)[1] if first else stack.start(2, dtype=torch.float64)
        readings, state = stack.scan(*given, state=state)
        last = stack.step(state, *(part[:, 0] for part in given)).reading
        total = (readings * torch.arange(readings.numel()).reshape(readings.shape).sin()).sum() + last.sum()
        return [readings, last], list(torch.autograd.grad(total, given))

    expected = results()
    with backends.using("triton"):
        found = results()
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, 1e-12)


def test_backends_are_chosen_by_device_and_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ndstack.backends()["cpu"] == "cpu"
    cuda = torch.device("cuda")
    assert backends.choose(cuda) == "triton"
    ndstack.use_backend("portable")
    try:
        assert backends.choose(cuda) == "portable"
        assert ndstack.backends()["cpu"] == "portable"
    finally:
        ndstack.use_backend("auto")
    with pytest.raises(NdstackError, match="expected one of auto, cpu, portable, triton"):
        ndstack.use_backend("magic")
    monkeypatch.setattr(triton_launch, "installed", lambda: False)
    assert backends.choose(cuda) == "portable"
    with pytest.raises(NdstackError, match=r"install ndstack\[gpu\]"):
        backends.choose(cuda, "triton")


def test_kernels_start_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    @contextlib.contextmanager
    def current(device: torch.device) -> Iterator[None]:
        done.append(device)
        yield
        done.append("back")

    monkeypatch.setattr(torch.cuda, "device", current)
    given = torch.zeros(2)
    tuned = {(3,): lambda *arguments, **sizes: done.append((arguments, sizes))}
    triton_launch.Placed(tuned)[(3,)](given, 7, Q=2)
    assert done == [given.device, ((given, 7), {"Q": 2}), "back"]


def test_every_kernel_compiles_for_a_gpu() -> None:
    """For an A100, with the assembler that Triton brings along."""
    command = [sys.executable, "-m", "benchmarks.gpu_compile", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fp32") == 9
    assert done.stdout.count("fp64") == 2  # a run of vectors, normalised, with a window, there and back


def test_nothing_needs_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import ndstack, torch; ndstack.use_backend('portable')\n"
        "output, _ = ndstack.nn.StackRNN(2, 3, ndstack.stacks.Nondeterministic(1, 2))(torch.randn(1, 4, 2))\n"
        "output.sum().backward(); print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
