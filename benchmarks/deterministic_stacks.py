"""What a deterministic stack costs: superposition and stratification against no stack.

Forward and backward. The RNNs are an LSTM of 20 units over one-hot input: stepped, in one operation a
step (`step_lstm`) or in two (a cell, then `drive`, as with any controller), or all steps in one operation
(`run_lstm`). The baseline is the same LSTM without a stack, stepped with the same cell; beside it stands
torch's own cell. Scans are the stacks alone, as stack attention uses them. Runs take turns, so that
noise hits all alike. Medians are shown, also of the ratio, which is that of two runs one shortly after
the other.

    python -m benchmarks.deterministic_stacks [--length 80] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ndstack.nn.fused import LSTMWeights, run_lstm, step_lstm
from ndstack.ops.lstm import lstm_cell
from ndstack.stacks import Stack, Stratification, Superposition

SYMBOLS = 3
HIDDEN = 20

Row = dict[str, Any]


class StackLSTM(torch.nn.Module):
    """The controller-stack interface of section 3.2, or the LSTM alone."""

    def __init__(self, stack: Stack[Any] | None) -> None:
        super().__init__()
        self.stack = stack
        self.cell = torch.nn.LSTMCell(SYMBOLS + (stack.reading_size if stack else 0), HIDDEN)
        self.output = torch.nn.Linear(HIDDEN, SYMBOLS + 1)
        if stack is not None:
            self.controls = torch.nn.Linear(HIDDEN, stack.control_size)

    def stepped(self, inputs: Tensor, together: bool = True) -> Tensor:
        """One step after the other; LSTM and stack together, or each in an operation of its own."""
        batch, cell, stack = inputs.shape[0], self.cell, self.stack
        memory = (inputs.new_zeros(batch, HIDDEN), inputs.new_zeros(batch, HIDDEN))
        hidden = []
        added = cell.bias_ih + cell.bias_hh
        if stack is None:
            for x in inputs.unbind(1):
                memory = lstm_cell(added, x, *memory, cell.weight_ih, cell.weight_hh)
                hidden.append(memory[0])
            return self._logits(torch.stack(hidden, dim=1))
        state, weight, bias = stack.start(batch), self.controls.weight, self.controls.bias
        of_input, of_reading = cell.weight_ih.split((SYMBOLS, stack.reading_size), dim=1)
        weights = LSTMWeights(of_reading, cell.weight_hh, weight, bias)
        for gates in torch.nn.functional.linear(inputs, of_input, added).unbind(1):
            if together:
                memory, state = step_lstm(stack, gates, weights, memory, state)
            else:
                memory = lstm_cell(gates, state.reading, *memory, of_reading, cell.weight_hh)
                state = stack.drive(state, memory[0], weight, bias)
            hidden.append(memory[0])
        return self._logits(torch.stack(hidden, dim=1))

    def stepped_by_torch(self, inputs: Tensor) -> Tensor:
        """Without a stack, with `torch.nn.LSTMCell`."""
        hidden, memory = [], None
        for x in inputs.unbind(1):
            memory = self.cell(x, memory)
            hidden.append(memory[0])
        return self._logits(torch.stack(hidden, dim=1))

    def whole(self, inputs: Tensor) -> Tensor:
        assert self.stack is not None
        batch = inputs.shape[0]
        memory = (inputs.new_zeros(batch, HIDDEN), inputs.new_zeros(batch, HIDDEN))
        of_input, of_reading = self.cell.weight_ih.split((SYMBOLS, self.stack.reading_size), dim=1)
        gates = inputs @ of_input.t() + (self.cell.bias_ih + self.cell.bias_hh)
        weights = LSTMWeights(of_reading, self.cell.weight_hh, self.controls.weight, self.controls.bias)
        hidden, *_ = run_lstm(self.stack, gates, weights, memory, self.stack.start(batch))
        return self._logits(hidden)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits


def milliseconds(work: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, list[float]]:
    """The times of each piece of work and of its gradient."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 3):
        for name, forward in work.items():
            begin = time.perf_counter()
            forward().sum().backward()
            if turn >= 3:
                times[name].append(time.perf_counter() - begin)
    return {name: [1e3 * value for value in values] for name, values in times.items()}


def networks(length: int, batch: int, size: int, repeats: int) -> list[Row]:
    inputs = torch.eye(SYMBOLS)[torch.randint(SYMBOLS, (batch, length))]
    stacks: dict[str, Stack[Any]] = {
        f"superposition {size}": Superposition(size),
        f"superposition {size}, depth 10": Superposition(size, depth=10),
        "superposition 3-3-3": Superposition((3, 3, 3)),
        f"stratification {size}": Stratification(size),
    }
    bare = StackLSTM(None)
    models = {name: StackLSTM(stack) for name, stack in stacks.items()}
    work: dict[str, Callable[[], Tensor]] = {
        "no stack, stepped": lambda: bare.stepped(inputs),
        "no stack, torch.nn.LSTMCell": lambda: bare.stepped_by_torch(inputs),
    }
    for name, model in models.items():
        work[f"{name}, stepped"] = partial(model.stepped, inputs)
        work[f"{name}, stepped with drive"] = partial(model.stepped, inputs, together=False)
        work[f"{name}, one operation"] = partial(model.whole, inputs)
    times = milliseconds(work, repeats)
    base = times["no stack, stepped"]
    return [
        {
            "what": name,
            "length": length,
            "milliseconds": statistics.median(values),
            "ratio": statistics.median(own / bare for own, bare in zip(values, base, strict=True)),
        }
        for name, values in times.items()
    ]


def readings(stack: Stack[Any], actions: Tensor, pushed: Tensor) -> Tensor:
    return stack.scan(actions, pushed)[0]


def scans(lengths: list[int], batch: int, size: int, repeats: int) -> list[Row]:
    rows = []
    for length in lengths:
        work: dict[str, Callable[[], Tensor]] = {}
        stacks: dict[str, Stack[Any]] = {
            f"scan of superposition {size}": Superposition(size),
            f"scan of superposition {size}, depth 10": Superposition(size, depth=10),
            f"scan of stratification {size}": Stratification(size),
        }
        for name, stack in stacks.items():
            actions = torch.randn(batch, length, stack.action_size, requires_grad=True)
            pushed = torch.randn(batch, length, stack.push_size, requires_grad=True)
            work[name] = partial(readings, stack, actions, pushed)
        times = milliseconds(work, repeats)
        rows += [
            {"what": name, "length": length, "milliseconds": statistics.median(values)}
            for name, values in times.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=80, help="of the RNNs' input")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--size", type=int, default=20, help="of the vectors")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1, help="for torch; these are small tensors")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    rows = networks(options.length, options.batch, options.size, options.repeats)
    rows += scans([80, 320, 1000], options.batch, options.size, max(3, options.repeats // 5))
    print(f"{'batch ' + str(options.batch):46}{'n':>6}{'ms':>10}{'x bare LSTM':>13}")
    for row in rows:
        ratio = f"{row['ratio']:13.2f}" if "ratio" in row else ""
        print(f"{row['what']:46}{row['length']:6}{row['milliseconds']:10.2f}{ratio}")
    if options.json:
        settings = {"batch": options.batch, "threads": options.threads}
        options.json.write_text(json.dumps({**settings, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
