"""Single steps for `benchmarks.gpu`: as they are, with a chart of fixed capacity, and as CUDA graphs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ndstack.nn import RNNState, StackRNN
from ndstack.ops.runtime import backends
from ndstack.stacks import Nondeterministic

Row = dict[str, Any]
Step = Callable[[Tensor], Tensor]
"""The next input, [B, 1, I], to the next output, [B, 1, H]."""


def fixed_start(network: StackRNN, batch: int, capacity: int) -> RNNState:
    """A state whose tensors keep their shapes and have memory of their own."""
    state, stack = network.start(batch), network.stack
    assert isinstance(state, RNNState)
    assert isinstance(stack, Nondeterministic)
    like = next(network.parameters())
    fixed = stack.start(batch, capacity=capacity, dtype=like.dtype, device=like.device)
    return dataclasses.replace(state, stack=fixed).clone()


def plain_steps(network: StackRNN, batch: int, capacity: int) -> Step:
    """Steps with a chart that grows."""
    return steps_from(network, network.start(batch))


def fixed_steps(network: StackRNN, batch: int, capacity: int) -> Step:
    """Steps with a chart of fixed capacity."""
    return steps_from(network, fixed_start(network, batch, capacity))


def steps_from(network: StackRNN, state: Any) -> Step:
    """Steps that carry a state."""

    def step(x: Tensor) -> Tensor:
        nonlocal state
        output: Tensor
        output, state = network(x, state)
        return output

    return step


def graph_steps(network: StackRNN, batch: int, capacity: int) -> Step:
    """Replays of one step, recorded as a CUDA graph."""
    state, fresh = (fixed_start(network, batch, capacity) for _ in range(2))
    x = torch.zeros(batch, 1, network.input_size, device="cuda")
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # what is done only once must not be recorded
        for _ in range(3):
            network(x, state)
    torch.cuda.current_stream().wait_stream(aside)
    graph, output = torch.cuda.CUDAGraph(), x
    with torch.cuda.graph(graph):
        output, new = network(x, state)
        state.copy_(new)
    state.copy_(fresh)

    assert isinstance(output, Tensor)

    def step(given: Tensor) -> Tensor:
        x.copy_(given)
        graph.replay()
        return output.clone()

    return step


def compiled_steps(network: StackRNN, batch: int, capacity: int) -> Step:
    """Steps by `torch.compile`, which makes CUDA graphs, too."""
    state: Any = fixed_start(network, batch, capacity)
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(network, mode="reduce-overhead", fullgraph=True)

    def step(x: Tensor) -> Tensor:
        nonlocal state
        torch.compiler.cudagraph_mark_step_begin()
        with torch._dynamo.config.patch(allow_rnn=True):
            output, state = compiled(x, state)
        shown: Tensor = output.clone()
        state = state.clone()  # the next replay writes over what this one gave
        return shown

    return step


Maker = Callable[[StackRNN, int, int], Step]
"""A network, the batch and the capacity to steps."""


def kinds(device: torch.device) -> dict[str, Maker]:
    """All ways to make steps on a device."""
    found: dict[str, Maker] = {"steps": plain_steps, "fixed capacity": fixed_steps}
    if device.type == "cuda":
        found |= {"CUDA graph": graph_steps, "torch.compile": compiled_steps}
    return found


def step_checks(
    device: torch.device,
    error: Callable[[list[Tensor], list[Tensor]], float],
    attempt: Callable[[str, str, Callable[[], float]], Row],
) -> list[Row]:
    """Steps against a whole sequence in float64 on the CPU."""
    torch.manual_seed(0)
    network, x = StackRNN(3, 5, Nondeterministic(2, 2, 2)), torch.randn(2, 6, 3)
    with torch.no_grad():
        expected, _ = network.double()(x.double())
    network, x = network.float().to(device), x.to(device)

    def compare(make: Maker) -> float:
        with torch.no_grad(), backends.using("portable"):
            step = make(network, 2, 6)
            found = torch.cat([step(x[:, t : t + 1]) for t in range(6)], 1)
        return error([found], [expected])

    return [
        attempt("single steps, LSTM with vrns-2-2-2", name, functools.partial(compare, make))
        for name, make in kinds(device).items()
    ]


def step_times(
    tiny: bool, device: torch.device, seconds: Callable[[Callable[[], object], int], float]
) -> list[Row]:
    """Milliseconds of a step, the mean over a sequence of n."""
    rows: list[Row] = []
    for states, symbols, batch, n in (
        [(1, 2, 1, 4)] if tiny else [(2, 3, 10, 80), (3, 3, 10, 80), (3, 3, 10, 200)]
    ):
        network = StackRNN(4, 20, Nondeterministic(states, symbols)).to(device)
        x = torch.randn(batch, 1, 4, device=device)
        row: Row = {"": f"LSTM 20 with rns-{states}-{symbols}, batch {batch}, n = {n}"}
        for name, make in kinds(device).items():
            row[name] = _measured(network, make, x, n, seconds)
        rows.append(row)
    return rows


def _measured(
    network: StackRNN,
    make: Maker,
    x: Tensor,
    n: int,
    seconds: Callable[[Callable[[], object], int], float],
) -> str:
    try:
        with torch.no_grad(), backends.using("portable"):
            step = make(network, len(x), 2 * n)
            found = seconds(lambda: [step(x) for _ in range(n)], 1) / n
    except Exception as failure:  # a report with a hole says more than none
        return type(failure).__name__
    return f"{1000 * found:.2f}"
