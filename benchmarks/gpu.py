"""The stacks on a GPU: `python -m benchmarks.gpu [--out FILE]`, and send back what it prints.

It reports where it ran, compares every backend with the log-space reference in float64 (readings and all
gradients), compares single steps as CUDA graphs with those that are not, and measures time and memory. What
fails is part of the report. Without a GPU it runs in a tiny form, with the Triton kernels interpreted on the
CPU: then its times mean nothing, and its comparisons are the same.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import ndstack
from benchmarks.gpu_steps import step_checks, step_times
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


def attempt(name: str, way: str, compare: Callable[[], float]) -> Row:
    """A row of the report: the largest error, or what went wrong."""
    print(f"checking {name}, {way}", file=sys.stderr, flush=True)
    try:
        return {"check": name, "backend": way, "error": compare()}
    except Exception as failure:  # a report with a hole says more than none
        said = " ".join(str(failure).split())[:200]
        return {
            "check": name,
            "backend": way,
            "error": math.inf,
            "failure": f"{type(failure).__name__}: {said}",
        }


def scan_checks(tiny: bool, most: int | None = None) -> list[Row]:
    """Scans over given actions against the reference; the first `most` cases, if that is given."""
    cases: list[tuple[int, int, int, int, float, dict[str, Any]]] = [
        (2, 2, 1, 5, 1.0, {}),
        (1, 3, 1, 4, 1.0, {"bottom_fix": False}),
        (2, 2, 1, 5, 1.0, {"window": 3}),
        (1, 2, 1, 4, 60.0, {}),
    ]
    if not tiny:
        cases += [(3, 3, 4, 120, 1.0, {}), (2, 3, 4, 200, 0.3, {"window": 50}), (4, 4, 2, 40, 30.0, {})]
    rows = []
    for states, symbols, batch, n, scale, options in cases[:most]:
        given = draw(states, symbols, batch, n, scale)
        vectors = torch.rand(batch, n, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        expected = scan_results(given, vectors, "reference", **options)

        def compare(way: str) -> float:
            moved = [part.float().to(place()) for part in given]  # noqa: B023
            return error(
                scan_results(moved, vectors.float().to(place()), way, **options),  # noqa: B023
                expected,  # noqa: B023
            )

        shown = "".join(f", {name} {value}" for name, value in options.items())
        name = f"scan {states}-{symbols}, n = {n}, scale {scale:g}{shown}"
        rows += [attempt(name, way, functools.partial(compare, way)) for way in ways()]
    return rows


def network_results(network: StackRNN, x: Tensor) -> list[Tensor]:
    """Outputs and the gradients with respect to all parameters."""
    output, _ = network(x)
    return [output, *torch.autograd.grad(output.square().sum(), list(network.parameters()))]


def network_checks(tiny: bool, most: int | None = None) -> list[Row]:
    """Networks against the same in float64 on the CPU."""
    stacks: dict[str, Stack[Any]] = {
        "rns-2-2": Nondeterministic(2, 2),
        "vrns-2-2-3": Nondeterministic(2, 2, 3),
        "ns-2-2": Nondeterministic(2, 2, normalized=True, read_states=False, bottom_fix=False),
        "vrns-2-2-3, window": Nondeterministic(2, 2, 3, window=3),
        "sup-3": Superposition(3),
        "strat-3": Stratification(3),
    }
    n, rows = 4 if tiny else 60, []
    for name, stack in list(stacks.items())[:most]:
        torch.manual_seed(0)
        network, x = StackRNN(3, 5, stack), torch.randn(1 if tiny else 4, n, 3)
        expected = network_results(network.double(), x.double())
        network = network.float().to(place())

        def compare(way: str) -> float:
            with backends.using(way):
                return error(network_results(network, x.to(place())), expected)  # noqa: B023

        shown = f"LSTM with {name}, n = {n}"
        rows += [attempt(shown, way, functools.partial(compare, way)) for way in ways()]
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


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """The same in milliseconds; nan if the work fails, and then the reason is shown."""
    try:
        return 1000 * seconds(work, repeats)
    except Exception as failure:  # a report with a hole says more than none
        print(f"failed: {type(failure).__name__}: {failure}", file=sys.stderr, flush=True)
        return math.nan


def scan_step(states: int, symbols: int, batch: int, n: int, way: str) -> None:
    """Forward and backward of a scan, where that way runs."""
    device = torch.device("cpu") if way == "cpu" else place()
    given = [part.float().to(device) for part in draw(states, symbols, batch, n, 0.3)]
    scan_results(given, None, way)


def network_step(network: StackRNN, x: Tensor, way: str) -> None:
    """Forward and backward of a network."""
    with backends.using(way):
        network_results(network, x)


def times(tiny: bool) -> list[Row]:
    """Milliseconds of a forward and a backward pass, by backend."""
    sizes = [(1, 2, 1, 3)] if tiny else [(2, 3, 10, 80), (3, 3, 10, 80), (3, 3, 10, 200), (3, 3, 2, 500)]
    repeats, units = (1, 4) if tiny else (5, 20)
    rows = []
    for states, symbols, batch, n in sizes:
        print(f"measuring {states}-{symbols}, n = {n}", file=sys.stderr, flush=True)
        row: Row = {"work": f"scan {states}-{symbols}, batch {batch}, n = {n}"}
        for way in ("reference", "cpu", *ways()):
            if way == "reference" and n > 100:
                continue
            work = functools.partial(scan_step, states, symbols, batch, n, way)
            row[way] = milliseconds(work, 1 if way == "reference" else repeats)
        rows.append(row)
        row = {"work": f"LSTM {units} with rns-{states}-{symbols}, batch {batch}, n = {n}"}
        for way in ("cpu", *ways()):
            device = torch.device("cpu") if way == "cpu" else place()
            network = StackRNN(4, units, Nondeterministic(states, symbols)).to(device)
            x = torch.randn(batch, n, 4, device=device)
            row[way] = milliseconds(functools.partial(network_step, network, x, way), repeats)
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


def verdict(row: Row) -> str:
    """What a reader sees first."""
    return str(row.get("failure", "fine" if row["error"] <= LIMIT else "WRONG"))


def table(head: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:], ""]


def report(results: Row) -> str:
    """All results as Markdown."""
    lines = ["## Where", ""] + [f"- {name}: {value}" for name, value in results["environment"].items()]
    wrong = [row for row in results["checks"] if verdict(row) != "fine"]
    lines += ["", "## Correct", "", f"{len(wrong)} of {len(results['checks'])} comparisons failed.", ""]
    checks = [
        [row["check"], row["backend"], f"{row['error']:.1e}", verdict(row)] for row in results["checks"]
    ]
    lines += table(["", "backend", "largest error", ""], checks)
    names = {"reference": "log space", "cpu": "CPU kernels"} | {way: way for way in results["ways"]}
    lines += ["## Milliseconds, forward and backward", ""]
    measured = [
        [row["work"], *(f"{row[name]:.1f}" if name in row else "" for name in names)]
        for row in results["times"]
    ]
    lines += table(["", *names.values()], measured)
    lines += ["## Milliseconds of a single step, without derivatives", ""]
    kinds = list(results["steps"][0])
    lines += table(kinds, [[str(row[kind]) for kind in kinds] for row in results["steps"]])
    lines += ["## Memory, forward and backward", ""]
    took = [
        [row["work"], f"{row['planned'] / 1e6:.1f} MB", f"{row['took'] / 1e6:.1f} MB"]
        for row in results["memory"]
    ]
    return "\n".join([*lines, *table(["", "planned", "took"], took)])


def run(tiny: bool, most: int | None = None) -> Row:
    """All results, or those of the first `most` comparisons of scans and of networks."""
    return {
        "environment": environment(),
        "ways": ways(),
        "checks": scan_checks(tiny, most) + network_checks(tiny, most) + step_checks(place(), error, attempt),
        "times": times(tiny),
        "steps": step_times(tiny, place(), seconds),
        "memory": memory_rows(tiny),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    parser.add_argument("--out", type=Path, help="write the report to this file, too")
    options = parser.parse_args()
    results = run(options.tiny or not torch.cuda.is_available())
    text = report(results)
    print(text)
    if options.out:
        options.out.write_text(text)
    raise SystemExit(1 if any(verdict(row) != "fine" for row in results["checks"]) else 0)


if __name__ == "__main__":
    main()
