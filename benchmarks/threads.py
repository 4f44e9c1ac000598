"""What a user gets who sets nothing: `python -m benchmarks.threads`, on an otherwise idle machine.

Training steps with embedding, LSTM, loss, clipping and Adam (batch 10, best of 40), each setting in a
process of its own: one torch thread and all cores for the kernels, torch's default threads, and the same
with ordinary threads instead of torch's own. Then the first training step of an RNS-RNN with an empty cache
of compiled code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch

from ndstack.nn import StackRNN
from ndstack.ops.runtime import threads
from ndstack.stacks import Nondeterministic

SETTINGS = ("best", "default", "ordinary")
SIZES = {
    "RNS 2-3, n = 80": (2, 3, None, 80),
    "RNS 3-3, n = 80": (3, 3, None, 80),
    "VRNS 3-3-5, n = 40": (3, 3, 5, 40),
}


class Trained:
    """A small language model and what a training step needs."""

    def __init__(self, states: int, symbols: int, vector_size: int | None, length: int) -> None:
        self.embedding, self.output = torch.nn.Embedding(8, 8), torch.nn.Linear(20, 8)
        self.rnn = StackRNN(8, 20, Nondeterministic(states, symbols, vector_size))
        parts = torch.nn.ModuleList([self.embedding, self.rnn, self.output])
        self.parameters = list(parts.parameters())
        self.optimizer = torch.optim.Adam(self.parameters)
        self.symbols = torch.randint(8, (10, length))

    def step(self) -> float:
        """Make a training step, and return its seconds."""
        began = time.perf_counter()
        self.optimizer.zero_grad()
        hidden, _ = self.rnn(self.embedding(self.symbols))
        logits = self.output(hidden).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, self.symbols.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 5.0)
        self.optimizer.step()
        return time.perf_counter() - began


def measure(setting: str) -> None:
    """Print the best time of each size, or the time of the first step of all."""
    torch.manual_seed(0)
    if setting == "best":
        threads.set_num_threads(torch.get_num_threads())
        torch.set_num_threads(1)
    elif setting == "ordinary":
        threads._openmp = None
    sizes = list(SIZES.values())[:1] if setting == "first" else SIZES.values()
    for size in sizes:
        trained = Trained(*size)
        times = [trained.step() for _ in range(1 if setting == "first" else 42)]
        print(1000 * min(times))


def in_a_process(setting: str, **environment: str) -> list[float]:
    """Return what `measure` prints."""
    command = [sys.executable, "-m", "benchmarks.threads", "--setting", setting]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setting", choices=[*SETTINGS, "first"], help="measure one, in this process")
    setting = parser.parse_args().setting
    if setting is not None:
        measure(setting)
        return
    in_a_process("default")  # compiles
    columns = [in_a_process(setting) for setting in SETTINGS]
    print("| ms | " + " | ".join(SETTINGS) + " |\n" + "|---" * (1 + len(SETTINGS)) + "|")
    for name, row in zip(SIZES, zip(*columns, strict=True), strict=True):
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
    with tempfile.TemporaryDirectory() as folder:
        (first,) = in_a_process("first", NUMBA_CACHE_DIR=folder)
    print(f"first training step of RNS 2-3, empty cache: {first / 1000:.1f} s")


if __name__ == "__main__":
    main()
