"""Time against length, with the arithmetic alone beside it: `python -m benchmarks.lengths [--picture FILE]`.

Forward + backward of two sequences: a scan over given actions (VRNS 3-3-5, as stack attention has it) and a
fused run of an LSTM and its stack (RNS 3-3). The cubic sums alone, at the speed of this machine's matrix
products, are the line that nothing can cross.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.stacks import Controller, best_of, gemm_rate, rate, scan_step, train_step
from ndstack.plotting import line_style, new_axes, save_figure
from ndstack.stacks.nondeterministic import Nondeterministic

BATCH = 2
LENGTHS = [20, 40, 80, 160, 250, 320, 500, 700, 1000]
LONGEST_RUN = 500
"""Longer fused runs are not measured: their actions come one by one, so they cannot go by blocks."""


def measure(longest: int) -> dict[str, Any]:
    """Seconds by length, and 10^9 multiply-adds per second of a matrix product."""
    torch.manual_seed(0)
    net = Controller(Nondeterministic(3, 3))
    work = {
        "scan": lambda n: functools.partial(scan_step, 3, 3, n, "cpu", 5, BATCH),
        "fused": lambda n: functools.partial(train_step, net, n, "fused", BATCH),
    }
    found: dict[str, Any] = {"sgemm": gemm_rate(torch.float32), "scan": {}, "fused": {}}
    for n in (length for length in LENGTHS if length <= longest):
        for name, make in work.items():
            if name == "scan" or n <= LONGEST_RUN:
                found[name][n] = best_of(make(n), 2 if n > 300 else 10)
    return found


def table(found: dict[str, Any]) -> str:
    """Both kinds of runs, their times and rates, as a Markdown table."""
    lines = ["| n | scan | 10^9 multiply-adds/s | fused | 10^9 multiply-adds/s |", "|---|---|---|---|---|"]
    for n in found["scan"]:
        cells = [str(n)]
        for name in ("scan", "fused"):
            seconds = found[name].get(n)
            cells += ["", ""] if seconds is None else [_time(seconds), f"{rate(n, seconds, batch=BATCH):.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"sgemm: {found['sgemm']:.1f} . 10^9 multiply-adds/s"])


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds > 1 else f"{1000 * seconds:.1f} ms"


def draw(found: dict[str, Any], path: Path) -> None:
    """Both axes logarithmic; the cube is a straight line."""
    figure, axes = new_axes()
    lengths = list(found["scan"])
    labels = {"scan": "scan, VRNS 3-3-5", "fused": "fused run, RNS 3-3"}
    for j, (name, label) in enumerate(labels.items()):
        axes.plot(list(found[name]), list(found[name].values()), marker="o", label=label, **line_style(j))
    ideal = [3 * BATCH * n**3 / 6 * 243 / found["sgemm"] / 1e9 for n in lengths]
    axes.plot(lengths, ideal, "--", color="grey", label="the cubic sums at sgemm's speed")
    axes.set(xscale="log", yscale="log", xlabel="length", ylabel="seconds, forward + backward, batch 2")
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.legend()
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="leave out longer sequences")
    parser.add_argument("--picture", type=Path, help="where to draw the curves")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    found = measure(options.longest)
    print(table(found))
    if options.picture:
        draw(found, options.picture)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
