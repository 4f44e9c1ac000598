"""How fast the nondeterministic stack is: `python -m benchmarks.stacks [PARTS] [--quick]`.

All rows are forward + backward with batch 10, and ratios are between times of one run of this
program. The baseline is the log-space reference run the way the dissertation's code runs it: step
by step, with einsum in the log semiring. Each time is the best of several. In the rows of networks the
baseline has the better of one and all torch threads; ours has one torch thread, since torch's waiting
threads take the cores from the kernels, and all kernel threads.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.loop import cubic_loop_rate
from ndstack.functional.nondeterministic import nondeterministic
from ndstack.nn.fused import FusedLSTM, LSTMWeights, find, run_lstm
from ndstack.ops.lstm import lstm_cell
from ndstack.ops.nondeterministic import reference
from ndstack.ops.nondeterministic.log_space import log_sum, quotient
from ndstack.ops.nondeterministic.settings import action_sizes
from ndstack.ops.runtime import threads
from ndstack.stacks.nondeterministic import Nondeterministic

BATCH, UNITS, INPUTS = 10, 20, 4
Row = dict[str, Any]


def best_of(work: Callable[[], object], repeats: int, *, warm: bool = True) -> float:
    """The shortest time of several, in seconds, after one that does not count.

    They follow each other as the steps of a training loop do. Garbage is collected before them, not between
    them, since the collector walks through all objects of the process and leaves the caches cold.
    """
    if warm:
        work()
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
    finally:
        gc.enable()
    return min(times)


class Controller(torch.nn.Module):
    """An LSTM of 20 units over one-hot input, with the stack that it drives."""

    def __init__(self, stack: Nondeterministic) -> None:
        super().__init__()
        self.stack = stack
        shapes = [
            (4 * UNITS, stack.reading_size),
            (4 * UNITS, UNITS),
            (stack.control_size, UNITS),
            (stack.control_size,),
            (INPUTS, 4 * UNITS),
        ]
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.empty(shape).uniform_(-0.1, 0.1)) for shape in shapes]
        )

    def prepared(self, n: int, batch: int = BATCH) -> tuple[Tensor, LSTMWeights, tuple[Tensor, Tensor]]:
        """What the input contributes to the gates, the weights, and the first memory."""
        symbols = torch.randint(INPUTS, (batch, n))
        one_hot = torch.nn.functional.one_hot(symbols, INPUTS).float()
        zeros = torch.zeros(batch, UNITS)
        return one_hot @ self.weights[4], LSTMWeights(*self.weights[:4]), (zeros, zeros)


def train_step(net: Controller, n: int, way: str, batch: int = BATCH) -> None:
    """Forward and backward."""
    inputs, weights, memory = net.prepared(n, batch)
    if way == "fused":
        hidden, *_ = run_lstm(net.stack, inputs, weights, memory, net.stack.start(batch))
    elif way == "steps":
        pair = find("lstm", net.stack)
        hidden, *_ = FusedLSTM.run(pair, net.stack, inputs, weights, memory, net.stack.start(batch))
    else:
        hidden = by_reference(net.stack, inputs, weights, memory)
    net.zero_grad()
    hidden.square().sum().backward()


def by_reference(
    stack: Nondeterministic, inputs: Tensor, weights: LSTMWeights, memory: tuple[Tensor, Tensor]
) -> Tensor:
    """The same network with the log-space reference as its stack."""
    kinds = (stack.states, stack.symbols)
    like = inputs.new_empty(BATCH, inputs.shape[1], *kinds, stack.states)
    bottom = None if stack.bottom is None else torch.nn.functional.logsigmoid(stack.bottom)
    stepper = reference.Stepper(like, bottom)
    reading, hidden = stack.start(BATCH).reading, []
    for gates in inputs.unbind(1):
        memory = lstm_cell(gates, reading, *memory, weights.reading, weights.hidden)
        hidden.append(memory[0])
        controls = torch.nn.functional.linear(memory[0], weights.control, weights.control_bias)
        sizes = [*action_sizes(*kinds), stack.push_size]
        push, replace, pop, pushed = torch.split(controls, sizes, -1)
        actions = [
            push.view(BATCH, *kinds, *kinds),
            replace.view(BATCH, *kinds, *kinds),
            pop.view(BATCH, *kinds, stack.states),
        ]
        if stack.push_size:
            actions.append(torch.nn.functional.logsigmoid(pushed))
        alpha, _, *numerator = stepper.step(*actions)
        total = log_sum(alpha.flatten(1))[:, None]
        shown = (numerator[0] if numerator else alpha).flatten(1)
        reading = quotient(shown, total)
    return torch.stack(hidden, 1)


def scan_step(states: int, symbols: int, n: int, backend: str, size: int, batch: int) -> None:
    """Forward and backward of a scan over given actions, as in stack attention."""
    kinds = (states, symbols)
    shapes = [(*kinds, *kinds), (*kinds, *kinds), (*kinds, states)]
    actions = [(0.3 * torch.randn(batch, n, *shape)).requires_grad_() for shape in shapes]
    vectors = torch.rand(batch, n, size) if size else None
    readings = nondeterministic(*actions, vectors=vectors, backend=backend)
    assert isinstance(readings, Tensor)
    readings.square().sum().backward()


def compared(stack: Nondeterministic, n: int, ways: list[str], name: str, rounds: int = 3) -> list[Row]:
    """A network against the same one with the reference for its stack, a row for each way to run it.

    Both sides take turns, so that what else the machine does hits them alike; the best times count.
    """
    net, all_threads = Controller(stack), torch.get_num_threads()
    threads.set_num_threads(all_threads)
    train_step(net, 5, "reference")
    theirs: list[float] = []
    ours: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for count in sorted({1, all_threads}):
            torch.set_num_threads(count)
            theirs.append(best_of(lambda: train_step(net, n, "reference"), 1, warm=False))
        torch.set_num_threads(1)
        for way in ways:
            ours[way].append(best_of(functools.partial(train_step, net, n, way), 8))
    torch.set_num_threads(all_threads)
    return [
        {"row": f"{name}, n = {n}, {way}", "baseline_s": min(theirs), "ours_s": min(ours[way])}
        for way in ways
    ]


def portable_row() -> Row:
    """The portable backend over given actions, against the reference over given actions."""
    theirs = best_of(lambda: scan_step(3, 3, 80, "reference", 0, BATCH), 2, warm=False)
    ours = best_of(lambda: scan_step(3, 3, 80, "portable", 0, BATCH), 5)
    return {"row": "rns-3-3, n = 80, portable scan", "baseline_s": theirs, "ours_s": ours}


def _peak(way: str, queue: Any) -> None:
    """In a process of its own: how far a training step raises the memory in use, in MB."""
    net = Controller(Nondeterministic(3, 3))
    train_step(net, 4, way)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _memory("VmRSS")
    train_step(net, 80, way)
    queue.put(_memory("VmHWM") - before)


def _memory(name: str) -> float:
    """Memory in use, or its peak, in MB, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def memory_row() -> Row:
    """Peak memory of RNS 3-3, n = 80."""
    context = multiprocessing.get_context("spawn")
    peaks = []
    for way in ("reference", "fused"):
        queue = context.Queue()
        process = context.Process(target=_peak, args=(way, queue))
        process.start()
        peaks.append(queue.get())
        process.join()
    return {"row": "rns-3-3, n = 80, peak memory", "baseline_mb": peaks[0], "ours_mb": peaks[1]}


def growth(lengths: list[int]) -> list[Row]:
    """How the time of the fused RNS 3-3 grows with n."""
    net = Controller(Nondeterministic(3, 3))
    rows = []
    for n in lengths:
        work = functools.partial(train_step, net, n, "fused")
        seconds = best_of(work, 1 if n > 300 else 5, warm=n < 300)
        rows.append({"row": f"rns-3-3, n = {n}, fused", "ours_s": seconds, "rate": rate(n, seconds)})
    return rows


def rate(n: int, seconds: float, states: int = 3, symbols: int = 3, batch: int = BATCH) -> float:
    """Multiply-adds a second of the three cubic sums (one forward, two backward), in 10^9."""
    each = n**3 / 6 * states**3 * symbols**2
    return 3 * batch * each / seconds / 1e9


def gemm_rate(dtype: torch.dtype, size: int = 768) -> float:
    """Multiply-adds a second of a plain matrix product of this machine, in 10^9."""
    a, b = (torch.rand(size, size, dtype=dtype) for _ in range(2))
    return size**3 / best_of(lambda: a @ b, 20) / 1e9


def scans(lengths: list[int]) -> list[Row]:
    """Scans over given actions (stack attention), VRNS 3-3-5, batch 10 up to n = 200, else 2."""
    rows = []
    for n in lengths:
        batch = BATCH if n <= 200 else 2
        work = functools.partial(scan_step, 3, 3, n, "cpu", 5, batch)
        seconds = best_of(work, 2 if n > 300 else 5)
        speed = rate(n, seconds, batch=batch)
        rows.append({"row": f"vrns-3-3-5, n = {n}, scan, batch {batch}", "ours_s": seconds, "rate": speed})
    return rows


def windowed(steps: int) -> Row:
    """A windowed stack (D = 35) that runs on, without gradients; memory of the last state."""
    stack = Nondeterministic(2, 3, window=35)
    state, held = stack.start(1), []
    begin = time.perf_counter()
    with torch.no_grad():
        for done in range(0, steps, 1000):
            _, state = stack.scan(torch.randn(1, 1000, stack.action_size), state=state)
            assert state.chart is not None
            held.append(sum(part.numel() * part.element_size() for part in state.chart.tensors))
            assert done + 1000 == state.time
    seconds = time.perf_counter() - begin
    name = f"rns-2-3, D = 35, {steps:,} steps"
    return {
        "row": name,
        "ours_s": seconds,
        "first_mb": held[0] / 2**20,
        "last_mb": held[-1] / 2**20,
    }


def networks() -> list[Row]:
    """Recurrent networks against the baseline."""
    return [
        *compared(Nondeterministic(2, 3), 80, ["fused", "steps"], "rns-2-3"),
        *compared(Nondeterministic(3, 3), 80, ["fused", "steps"], "rns-3-3"),
        *compared(Nondeterministic(3, 3, 5), 40, ["fused"], "vrns-3-3-5"),
    ]


def measure(parts: list[str], quick: bool) -> dict[str, Any]:
    """The rows of the given parts."""
    torch.manual_seed(0)
    loads = [os.getloadavg()[0]]
    work: dict[str, Callable[[], list[Row]]] = {
        "networks": networks,
        "portable": lambda: [portable_row()],
        "memory": lambda: [memory_row()],
        "growth": lambda: growth([40, 80] if quick else [40, 80, 160, 320, 640]),
        "scan": lambda: scans([80] if quick else [80, 100, 200, 500, 1000]),
        "window": lambda: [windowed(2000 if quick else 100_000)],
    }
    rows = []
    for part in parts or list(work):
        print(f"measuring {part}", file=sys.stderr)
        rows += work[part]()
    rates = [gemm_rate(torch.float32), gemm_rate(torch.float64), cubic_loop_rate()]
    loads.append(os.getloadavg()[0])
    return {
        "machine": platform.processor() or platform.machine(),
        "load_before_and_after": loads,
        "torch_threads": torch.get_num_threads(),
        "kernel_threads": threads.get_num_threads(),
        "gemm_float32": rates[0],
        "gemm_float64": rates[1],
        "cubic_loop": rates[2],
        "rows": rows,
    }


def table(results: dict[str, Any]) -> str:
    """The rows as a Markdown table."""
    lines = ["| | baseline | ours | ratio |", "|---|---|---|---|"]
    for row in results["rows"]:
        if "baseline_mb" in row:
            ratio = row["baseline_mb"] / row["ours_mb"]
            cells = [f"{row['baseline_mb']:.0f} MB", f"{row['ours_mb']:.1f} MB", f"{ratio:.1f}"]
        else:
            base = row.get("baseline_s")
            extra = f", {row['rate']:.1f} G multiply-adds/s" if "rate" in row else ""
            if "last_mb" in row:
                extra = f", chart {row['first_mb']:.2f} MB then {row['last_mb']:.2f} MB"
            cells = [
                "" if base is None else f"{base:.2f} s",
                f"{1000 * row['ours_s']:.1f} ms{extra}",
                "" if base is None else f"{base / row['ours_s']:.0f}",
            ]
        lines.append(f"| {row['row']} | " + " | ".join(cells) + " |")
    lines.append("")
    lines.append(
        f"10^9 multiply-adds/s: cubic loop alone {results['cubic_loop']:.1f}, "
        f"sgemm {results['gemm_float32']:.1f}, dgemm {results['gemm_float64']:.1f}; "
        f"{results['kernel_threads']} threads; load of the machine before and after "
        f"{results['load_before_and_after'][0]:.1f} and {results['load_before_and_after'][1]:.1f}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the short rows")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--threads", type=int, help="for torch and the kernels alike")
    parser.add_argument(
        "parts", nargs="*", help="networks, portable, memory, growth, scan, window; all if none"
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = measure(options.parts, options.quick)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
