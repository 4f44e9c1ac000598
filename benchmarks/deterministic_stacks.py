"""What a deterministic stack costs an RNN: superposition and stratification against no stack.

An LSTM of 20 units is stepped over one-hot input, forward and backward, with and without a stack.
The issue of each run is one table and, with --json, a file.

    python -m benchmarks.deterministic_stacks [--length 80] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ndstack.stacks import Stack, Stratification, Superposition

SYMBOLS = 3
HIDDEN = 20


class Stepped(torch.nn.Module):
    """The controller-stack interface of section 3.2, stepped; or the LSTM alone, stepped."""

    def __init__(self, stack: Stack | None) -> None:
        super().__init__()
        self.stack = stack
        self.cell = torch.nn.LSTMCell(SYMBOLS + (stack.reading_size if stack else 0), HIDDEN)
        if stack is not None:
            self.controls = torch.nn.Linear(HIDDEN, stack.control_size)
        self.output = torch.nn.Linear(HIDDEN, SYMBOLS + 1)

    def forward(self, inputs: Tensor) -> Tensor:
        batch = inputs.shape[0]
        memory = (inputs.new_zeros(batch, HIDDEN), inputs.new_zeros(batch, HIDDEN))
        state = self.stack.start(batch) if self.stack else None
        hidden = []
        for x in inputs.unbind(1):
            if state is not None:
                x = torch.cat([x, state.reading], dim=1)
            memory = self.cell(x, memory)
            hidden.append(memory[0])
            if state is not None:
                state = self.stack.drive(state, self.controls(memory[0]))
        return self.output(torch.stack(hidden, dim=1))


def seconds(work: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times


def measure(length: int, batch: int, size: int, repeats: int) -> list[dict[str, object]]:
    """Median milliseconds, forward and backward, taken in turns so that noise hits all alike."""
    torch.manual_seed(0)
    inputs = torch.eye(SYMBOLS)[torch.randint(SYMBOLS, (batch, length))]
    models = {
        "no stack": Stepped(None),
        f"superposition {size}": Stepped(Superposition(size)),
        f"superposition {size}, depth 10": Stepped(Superposition(size, depth=10)),
        "superposition 3-3-3": Stepped(Superposition((3, 3, 3))),
        f"stratification {size}": Stepped(Stratification(size)),
    }
    times: dict[str, list[float]] = {name: [] for name in models}
    for round_ in range(repeats + 3):
        for name, model in models.items():
            taken = seconds(lambda model=model: model(inputs).logsumexp(-1).sum().backward(), 1)
            if round_ >= 3:
                times[name] += taken
    base = statistics.median(times["no stack"])
    return [
        {
            "model": name,
            "milliseconds": round(1e3 * statistics.median(values), 2),
            "ratio": round(statistics.median(values) / base, 2),
        }
        for name, values in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    rows = measure(options.length, options.batch, options.size, options.repeats)
    print(
        f"LSTM {HIDDEN} stepped, batch {options.batch}, length {options.length}, forward+backward"
    )
    print(f"{'':34}{'ms':>8}{'x no stack':>12}")
    for row in rows:
        print(f"{row['model']:34}{row['milliseconds']:8.2f}{row['ratio']:12.2f}")
    if options.json:
        options.json.write_text(json.dumps({"options": str(vars(options)), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
