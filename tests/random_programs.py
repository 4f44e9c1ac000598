"""Random programs over the public Python interface, in processes of their own.

    python -m tests.random_programs --count 10000 --seed 0 --out programs.jsonl
    python -m tests.random_programs --replay 1234

A program makes stacks or networks of random kinds, walks over a tree of states (chunks, steps, selections,
detaching, threads, forks), and its readings and derivatives are compared with the functions on whole
sequences in float64 (`tests.programs`). A process that dies, or says nothing for 60 s, is a fault of the
program that it was at. A run that was interrupted is resumed by the same command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ndstack.processes import tied_children
from ndstack.progress import progress_bar
from tests.programs.checking import run
from tests.programs.drawing import draw

HANGS = 60.0
COMPILES = 3600.0
"""Seconds that a program, and the first programs of a process, which may compile, can take."""
PER_PROCESS = 500
WARM = range(-60, 0)
"""Programs that a process begins with, so that all is compiled when time is taken."""


class Worker:
    """A process that runs programs, one line of seeds in, one line of results out."""

    def __init__(self, autocast: bool) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.random_programs", "--worker"]
        command += [] if autocast else ["--no-autocast"]
        with tied_children():
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self.done = 0
        for target in (self._listen, self._listen_to_errors):
            threading.Thread(target=target, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def _listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-30:], line.rstrip()]

    def ask(self, seed: int, patience: float) -> dict[str, Any]:
        """What became of a program."""
        assert self.process.stdin is not None
        began = time.monotonic()
        try:
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=patience)
        except queue.Empty:
            self.end()
            return {"seed": seed, "fault": f"hang: no answer for {patience:.0f} s"}
        except BrokenPipeError:
            line = ""
        self.done += 1
        if line:
            result: dict[str, Any] = json.loads(line)
            return result | {"seconds": round(time.monotonic() - began, 4)}
        code = self.process.wait()
        time.sleep(0.1)
        return {"seed": seed, "fault": f"the process ended with code {code}: {' | '.join(self.errors[-12:])}"}

    def end(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:  # waits, and closes its streams
            pass


def work(autocast: bool) -> None:
    """What a worker does."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        program = draw(int(line), autocast=autocast)
        print(json.dumps({"seed": program.seed, "fault": run(program)}), flush=True)


def results(seeds: list[int], autocast: bool, warm: bool = True) -> Iterator[dict[str, Any]]:
    """What became of each program, in processes that are replaced when they die or are old."""
    worker = None
    try:
        for seed in seeds:
            if worker is None or worker.process.poll() is not None or worker.done >= PER_PROCESS:
                if worker is not None:
                    worker.end()
                worker = Worker(autocast)
                for first in WARM if warm else ():
                    worker.ask(first, COMPILES)
                    if worker.process.poll() is not None:
                        worker = Worker(autocast)
                warm = False
                worker.ask(seed, COMPILES)  # imports take their time
            yield worker.ask(seed, HANGS)
    finally:
        if worker is not None:
            worker.end()


def replay(seed: int, autocast: bool) -> int:
    """Show a program and run it here."""
    program = draw(seed, autocast=autocast)
    print(program.listing())
    fault = run(program)
    print("all is well" if fault is None else fault)
    return 0 if fault is None else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Random programs over the public Python interface.")
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others follow")
    parser.add_argument("--out", type=Path, help="file for the results; programs that are in it are left out")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show and run one program here")
    parser.add_argument("--no-autocast", action="store_true", help="leave out autocast")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    autocast = not given.no_autocast
    if given.worker:
        work(autocast)
        return 0
    if given.replay is not None:
        return replay(given.replay, autocast)
    known = []
    if given.out is not None and given.out.exists():
        known = [json.loads(line) for line in given.out.read_text().splitlines() if line.endswith("}")]
    wanted = range(given.seed, given.seed + given.count)
    known = [result for result in known if result["seed"] in wanted]
    left = sorted(set(wanted) - {result["seed"] for result in known})
    began = time.monotonic()
    with progress_bar("random programs", len(left)) as advance:
        for result in results(left, autocast):
            known.append(result)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            if result["fault"] is not None:
                print(f"{draw(result['seed'], autocast=autocast).listing()}\n  {result['fault']}", flush=True)
            advance(1)
    faults = [result["seed"] for result in known if result["fault"] is not None]
    longest = max((result.get("seconds", 0.0) for result in known), default=0.0)
    print(f"{len(known)} programs, {len(faults)} faults {faults[:20]}; the longest took {longest:.1f} s; "
          f"{time.monotonic() - began:.0f} s for the last {len(left)}")  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
