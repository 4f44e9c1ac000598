"""The stacks on a GPU: `python -m benchmarks.gpu [--json FILE]`, and send back what it prints.

It reports where it ran, compares every backend with the log-space reference in float64 (readings and all
gradients), and measures time and memory. Without a GPU it runs in a tiny form, with the Triton kernels
interpreted on the CPU: then its times mean nothing, and its comparisons are the same.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import ndstack
from benchmarks.peak import peak_of
from ndstack.functional import nondeterministic
from ndstack.nn import StackRNN
from ndstack.ops.nondeterministic import memory
from ndstack.ops.nondeterministic.portable.store import Automaton
from ndstack.ops.runtime import backends, triton_launch
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition

Row = dict[str, Any]
LIMIT = 1e-5
"""How far float32 may be from the reference, relative to the largest number where that exceeds 1."""


def place() -> torch.device:
    """Where to measure."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ways() -> list[str]:
    """The backends to compare there."""
    return ["portable", *(["triton"] if triton_launch.usable(place()) else [])]


def environment() -> Row:
    """What a reader has to know of the machine."""
    cuda = torch.cuda.is_available()
    return {
        "ndstack": ndstack.__version__,
        "torch": torch.__version__,
        "triton": triton_launch.version() or "not installed",
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if cuda else f"none; interpreted on {platform.machine()}",
        "capability": ".".join(map(str, torch.cuda.get_device_capability())) if cuda else "",
        "gpus": torch.cuda.device_count(),
        "backends": ndstack.backends(),
    }


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, relative to the largest number where that exceeds 1."""
    worst = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        wide, exact = ours.detach().double().cpu(), theirs.detach().double().cpu()
        worst = max(worst, ((wide - exact).abs().max() / exact.abs().max().clamp_min(1.0)).item())
    return worst


def scan_results(given: list[Tensor], vectors: Tensor | None, backend: str, **options: Any) -> list[Tensor]:
    """Readings, and the gradients of a fixed function of them."""
    inputs = [part.detach().requires_grad_() for part in given]
    readings = nondeterministic(inputs[0], inputs[1], inputs[2], vectors=vectors, backend=backend, **options)
    assert isinstance(readings, Tensor)
    shape = torch.arange(readings.numel(), dtype=torch.float64).reshape(readings.shape).sin()
    return [readings, *torch.autograd.grad((readings * shape.to(readings)).sum(), inputs)]


def draw(states: int, symbols: int, batch: int, n: int, scale: float = 1.0) -> list[Tensor]:
    """Log weights in float64 that float32 can hold."""
    kinds = (states, symbols)
    shapes = [(*kinds, *kinds), (*kinds, *kinds), (*kinds, states)]
    generator = torch.Generator().manual_seed(n)
    return [(scale * torch.randn(batch, n, *shape, generator=generator)).double() for shape in shapes]


def scan_checks(tiny: bool) -> list[Row]:
    """Scans over given actions against the reference."""
    cases: list[tuple[int, int, int, int, float, dict[str, Any]]] = [
        (2, 2, 2, 8, 1.0, {}),
        (1, 3, 1, 7, 1.0, {"bottom_fix": False}),
        (2, 2, 1, 8, 1.0, {"window": 3}),
        (1, 2, 1, 6, 60.0, {}),
    ]
    if not tiny:
        cases += [(3, 3, 4, 120, 1.0, {}), (2, 3, 4, 200, 0.3, {"window": 50}), (4, 4, 2, 40, 30.0, {})]
    rows = []
    for states, symbols, batch, n, scale, options in cases:
        given = draw(states, symbols, batch, n, scale)
        vectors = torch.rand(batch, n, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        expected = scan_results(given, vectors, "reference", **options)
        for way in ways():
            moved = [part.float().to(place()) for part in given]
            found = scan_results(moved, vectors.float().to(place()), way, **options)
            shown = ", ".join(f"{name} {value}" for name, value in options.items())
            name = f"scan {states}-{symbols}, n = {n}, scale {scale:g}{', ' if shown else ''}{shown}"
            rows.append({"check": name, "backend": way, "error": error(found, expected)})
    return rows


def network_results(network: StackRNN, x: Tensor) -> list[Tensor]:
    """Outputs and the gradients with respect to all parameters."""
    output, _ = network(x)
    return [output, *torch.autograd.grad(output.square().sum(), list(network.parameters()))]


def network_checks(tiny: bool) -> list[Row]:
    """Networks against the same in float64 on the CPU."""
    stacks: list[Stack[Any]] = [
        Nondeterministic(2, 2),
        Nondeterministic(2, 2, 3),
        Superposition(3),
        Stratification(3),
    ]
    n, rows = 6 if tiny else 60, []
    for stack in stacks:
        torch.manual_seed(0)
        network, x = StackRNN(3, 5, stack), torch.randn(2, n, 3)
        expected = network_results(network.double(), x.double())
        network = network.float().to(place())
        for way in ways():
            with backends.using(way):
                found = network_results(network, x.to(place()))
            rows.append(
                {"check": f"network with {stack}, n = {n}", "backend": way, "error": error(found, expected)}
            )
        network.cpu()
    return rows


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest time of several, after one that does not count."""

    def once() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once()
    return min(once() for _ in range(repeats))


def scan_step(states: int, symbols: int, batch: int, n: int, way: str) -> None:
    """Forward and backward of a scan, where that way runs."""
    device = torch.device("cpu") if way in ("cpu", "reference") else place()
    given = [part.float().to(device) for part in draw(states, symbols, batch, n, 0.3)]
    scan_results(given, None, way)


def network_step(network: StackRNN, x: Tensor, way: str) -> None:
    """Forward and backward of a network."""
    with backends.using(way):
        network_results(network, x)


def times(tiny: bool) -> list[Row]:
    """Milliseconds of a forward and a backward pass, by backend."""
    sizes = [(1, 2, 1, 8)] if tiny else [(2, 3, 10, 80), (3, 3, 10, 80), (3, 3, 10, 200), (3, 3, 2, 500)]
    repeats, rows = 1 if tiny else 5, []
    for states, symbols, batch, n in sizes:
        row: Row = {"work": f"scan {states}-{symbols}, batch {batch}, n = {n}"}
        for way in ("reference", "cpu", *ways()):
            if way == "reference" and n > 100:
                continue
            work = functools.partial(scan_step, states, symbols, batch, n, way)
            row[way] = 1000 * seconds(work, 1 if way == "reference" else repeats)
        rows.append(row)
        row = {"work": f"LSTM 20 with rns-{states}-{symbols}, batch {batch}, n = {n}"}
        for way in ("cpu", *ways()):
            device = torch.device("cpu") if way == "cpu" else place()
            network = StackRNN(4, 20, Nondeterministic(states, symbols)).to(device)
            x = torch.randn(batch, n, 4, device=device)
            row[way] = 1000 * seconds(functools.partial(network_step, network, x, way), repeats)
        rows.append(row)
    return rows


def memory_rows(tiny: bool) -> list[Row]:
    """The planned memory of a scan, and what it took."""
    sizes = [(2, 2, 2, 40), (3, 3, 2, 60)] if tiny else [(2, 3, 10, 100), (3, 3, 10, 200), (3, 3, 4, 500)]
    rows = []
    for states, symbols, batch, n in sizes:
        found = memory.plan(Automaton(states, symbols, None, True), batch, n)
        took = peak_of(lambda: scan_step(states, symbols, batch, n, "portable"), place())  # noqa: B023
        planned = max(found.forward, found.backward)
        rows.append({"work": f"{states}-{symbols}, batch {batch}, n = {n}", "planned": planned, "took": took})
    return rows


def report(results: Row) -> str:
    """All results as Markdown."""
    lines = ["## Where", ""] + [f"- {name}: {value}" for name, value in results["environment"].items()]
    lines += ["", "## Correct", "", "| | backend | largest error | |", "|---|---|---|---|"]
    for row in results["checks"]:
        verdict = "fine" if row["error"] <= LIMIT else "WRONG"
        lines.append(f"| {row['check']} | {row['backend']} | {row['error']:.1e} | {verdict} |")
    names = ["reference", "cpu", *results["ways"]]
    lines += ["", "## Milliseconds, forward and backward", "", "| | " + " | ".join(names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for row in results["times"]:
        cells = [f"{row[name]:.1f}" if name in row else "" for name in names]
        lines.append(f"| {row['work']} | " + " | ".join(cells) + " |")
    lines += ["", "## Memory, forward and backward", "", "| | planned | took |", "|---|---|---|"]
    for row in results["memory"]:
        lines.append(f"| {row['work']} | {row['planned'] / 1e6:.1f} MB | {row['took'] / 1e6:.1f} MB |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    tiny = options.tiny or not torch.cuda.is_available()
    results: Row = {
        "environment": environment(),
        "ways": ways(),
        "checks": scan_checks(tiny) + network_checks(tiny),
        "times": times(tiny),
        "memory": memory_rows(tiny),
    }
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    wrong = [row for row in results["checks"] if not row["error"] <= LIMIT]
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
