"""Forged checkpoints and states in processes under an allocator that notices: success, or one line, no crash.

`python -m tests.fuzz_states --count 500` tries many; `tests/test_fuzz_states.py` tries a few. A case is known
by its seed and number, and `--only NUMBER` does it again.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

ALLOCATOR = {
    "MALLOC_CHECK_": "3",
    "MALLOC_PERTURB_": "165",
    "PYTHONMALLOC": "debug",
    "NDSTACK_GUARD": "1",
    "OMP_NUM_THREADS": "1",
}
CHECKING_MALLOC = "libc_malloc_debug.so.0"  # since glibc 2.34 the checks are in a library of their own
SLOWEST = 60.0


def surroundings() -> dict[str, str]:
    """The environment of a process in which writing to foreign memory does not go unnoticed."""
    found = {**os.environ, **ALLOCATOR}
    folders = ("/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib/aarch64-linux-gnu")
    for folder in folders:
        if (Path(folder) / CHECKING_MALLOC).exists():
            found["LD_PRELOAD"] = str(Path(folder) / CHECKING_MALLOC)
            break
    return found


def attempt(seed: int, number: int) -> str:
    """The outcome of one case: "success", "refused", or what went wrong."""
    from ndstack.errors import NdstackError
    from tests.forgeries import FORGERIES, networks

    networks()  # an error here is none of a forgery
    choice = random.Random(f"{seed}/{number}")
    name = choice.choice(sorted(FORGERIES))
    begin = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FORGERIES[name](choice)
        outcome = "success"
    except NdstackError as error:
        outcome = "refused"
        if not str(error) or "\n" in str(error):
            outcome = f"not one line: {str(error)!r}"
    except Exception as error:  # that is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome = f"{type(error).__name__} at {last.filename}:{last.lineno}: {str(error)[:200]!r}"
    if time.process_time() - begin > SLOWEST:
        outcome = f"took {time.process_time() - begin:.0f} s"
    return f"{name}: {outcome}"


def work(seed: int, numbers: range) -> None:
    """Do some cases, one line before each and one after."""
    from ndstack.ops.runtime.addresses import inspect

    for number in numbers:
        print(f"begin {number}", flush=True)
        outcome = attempt(seed, number).replace("\n", " ")
        inspect()
        print(f"end {number} {outcome}", flush=True)


def supervise(seed: int, count: int, share: int = 100) -> tuple[collections.Counter[str], list[str]]:
    """Do all cases in processes; what came out how often, and what must not have happened."""
    tally: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    first = 0
    while first < count:
        last = min(first + share, count)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz_states",
            "--seed",
            str(seed),
            "--work",
            f"{first}:{last}",
        ]
        process = subprocess.run(
            command, env=surroundings(), capture_output=True, text=True, timeout=1800, check=False
        )
        lines = process.stdout.splitlines()
        for line in lines:
            if line.startswith("end "):
                _, number, name, outcome = line.split(" ", 3)
                first = int(number) + 1
                tally[f"{name} {outcome if outcome in ('success', 'refused') else 'FAILED'}"] += 1
                if outcome not in ("success", "refused"):
                    failures.append(f"case {number}: {name} {outcome}")
        if process.returncode:
            failures.append(
                f"case {first}: exit code {process.returncode}: {process.stderr[-400:].strip()!r}"
            )
            tally["crashed"] += 1
            first += 1
    return tally, failures


def main() -> int:
    """Try cases; 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="do one case, in this process")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only is not None:
        print(attempt(chosen.seed, chosen.only))
        return 0
    if chosen.work:
        work(chosen.seed, range(*map(int, chosen.work.split(":"))))
        return 0
    begin = time.monotonic()
    tally, failures = supervise(chosen.seed, chosen.count)
    for name, times in sorted(tally.items()):
        print(f"{times:6} {name}")
    print(f"{chosen.count} cases in {time.monotonic() - begin:.0f} s, {len(failures)} failures")
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
