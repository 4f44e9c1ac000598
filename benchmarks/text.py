"""What stacks cost on text (chapters 7, 9): training at 10,000 words, 32 rows of 35, 256 units, D = 35.

A step is forward, loss, backward, clipping and SGD, with the state carried from chunk to chunk. Models take
turns, so that noise hits all alike; medians are shown, as ratios to the LSTM of the same run. With one thread
the time is that of the processor, which a busy machine disturbs less; with more, that of the clock. Memory is
by how much the peak of a process of its own that trains the model exceeds the memory before the first step.

`--loss` compares ways to compute the output layer's cross-entropy instead.

    python -m benchmarks.text [--threads 2] [--repeats 10] [--json FILE] [--loss]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from ndstack.nn import NetworkState, models
from ndstack.ops.runtime import threads
from ndstack.settings.model import ModelOptions
from ndstack.text import Stream, total_loss
from ndstack.text.launch import model_options
from ndstack.text.task import read_batch

MODELS = ("lstm", "sup-22", "rns-1-3", "rns-2-3", "rns-4-5", "vrns-3-3-5")
WORDS, ROWS, LENGTH, UNITS = 10_000, 32, 35, 256


class Training:
    """A model and where it is in a stream of random words."""

    def __init__(self, name: str) -> None:
        words = [f"w{index}" for index in range(WORDS - 2)] + ["<unk>"]
        options = ModelOptions.model_validate(model_options(name, UNITS))
        self.model = models.build(name, words, **options.model_dump())
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1.0)
        tokens = np.random.default_rng(0).zipf(1.3, 400 * ROWS * LENGTH) % WORDS
        self.stream = Stream(tokens.astype(np.uint16), WORDS - 1, ROWS, LENGTH)
        self.number = 0
        self.state: NetworkState | None = None

    def step(self) -> None:
        chunk = self.stream.chunk(self.number)
        total, state = read_batch(self.model, chunk, self.state)
        self.optimizer.zero_grad()
        (total / chunk.tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
        self.optimizer.step()
        self.number, self.state = self.number + 1, state.detach()


def medians(work: dict[str, Callable[[], object]], repeats: int, warm: int = 3) -> dict[str, float]:
    """The median seconds of each piece of work; they take turns."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(warm + repeats):
        for name, one in work.items():
            begin = clock()
            one()
            if turn >= warm:
                times[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def peak() -> float:
    """The greatest memory of this process since `forget_peak`, in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def forget_peak() -> float:
    """Let the peak be the memory of this moment, in MB, which is returned."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def memory(kind: str, name: str, count: int) -> float:
    """What a piece of work takes at most, in MB, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.text", "--memory", kind, name, "--threads", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(kind: str, name: str) -> float:
    work = Training(name).step if kind == "model" else losses()[name]
    before = forget_peak()
    for _ in range(4):
        work()
    return peak() - before


def losses() -> dict[str, Callable[[], object]]:
    """The output layer's loss and its gradients, in several ways."""
    torch.manual_seed(0)
    layer, hidden = torch.nn.Linear(UNITS, WORDS), torch.randn(ROWS * LENGTH, UNITS, requires_grad=True)
    adaptive = torch.nn.AdaptiveLogSoftmaxWithLoss(UNITS, WORDS, [WORDS // 10, WORDS // 2])
    targets = torch.from_numpy(np.random.default_rng(0).zipf(1.3, ROWS * LENGTH) % WORDS)

    def work(loss: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: loss().backward()

    ways = {
        "all logits, cross_entropy": lambda: cross_entropy(layer(hidden), targets),
        "128 at a time (ndstack)": lambda: total_loss(hidden, layer, targets) / len(targets),
        "256 at a time, computed twice": lambda: sum(
            torch.utils.checkpoint.checkpoint(
                lambda h, t: cross_entropy(linear(h, layer.weight, layer.bias), t, reduction="sum"),
                hidden[first : first + 256],
                targets[first : first + 256],
                use_reentrant=False,
            )
            for first in range(0, len(targets), 256)
        ),
        "adaptive softmax": lambda: adaptive(hidden, targets).loss,
    }
    fused = getattr(torch.nn.functional, "linear_cross_entropy", None)
    if fused is not None:
        chunks = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256)
        ways["256 at a time (torch)"] = lambda: fused(
            hidden, layer.weight, targets, linear_bias=layer.bias, options=chunks
        )
    return {name: work(loss) for name, loss in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--loss", action="store_true", help="measure the output layer's loss instead")
    parser.add_argument("--memory", nargs=2, metavar=("KIND", "NAME"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    threads.set_num_threads(chosen.threads)
    if chosen.memory:
        print(measure_memory(*chosen.memory))
        return
    work: dict[str, Callable[[], object]]
    kind = "loss" if chosen.loss else "model"
    work = losses() if chosen.loss else {name: Training(name).step for name in MODELS}
    times = medians(work, chosen.repeats)
    base = next(iter(times.values()))
    rows: list[dict[str, Any]] = [
        {
            "what": name,
            "milliseconds": 1e3 * value,
            "tokens_per_second": ROWS * LENGTH / value,
            "ratio": value / base,
            "megabytes": memory(kind, name, chosen.threads),
        }
        for name, value in times.items()
    ]
    print(f"{'threads ' + str(chosen.threads):34}{'ms':>8}{'tokens/s':>10}{'ratio':>7}{'MB':>7}")
    for row in rows:
        figures = f"{row['milliseconds']:8.0f}{row['tokens_per_second']:10.0f}{row['ratio']:7.2f}"
        print(f"{row['what']:34}{figures}{row['megabytes']:7.0f}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"threads": chosen.threads, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
