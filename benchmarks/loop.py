"""The cubic loops of the compiled kernels by themselves.

`cubic_loop_rate` has columns as RNS 3-3 at n = 80 has them. `python -m benchmarks.loop` shows what the caches
allow: multiply-adds a second on one core, by the memory that all columns take, and by the number of results
for which a column is used once it is read.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine
from ndstack.ops.nondeterministic.cpu.streams import add_times
from ndstack.ops.runtime.simd import entry
from ndstack.ops.runtime.threads import get_num_threads, share

STREAMS, LENGTH, REPEATS = 120, 256, 4000


@entry
def _drive(X, off, W, counts, length, out, pos, repeats):  # type: ignore[no-untyped-def]
    for _ in range(repeats):
        combine(X, off, W, 3, 3, counts, length, out, pos)


def cubic_loop_rate() -> float:
    """Multiply-adds a second on all threads, in 10^9: 120 columns of 256 numbers, 3 results."""
    parts = get_num_threads()
    columns = np.random.default_rng(0).random((parts, STREAMS * LENGTH), dtype=np.float32)
    weights = np.full((parts, STREAMS * 3), 1e-3, np.float32)
    results = np.zeros((parts, 3 * LENGTH), np.float32)
    off, pos = np.arange(STREAMS) * LENGTH, np.arange(3) * LENGTH
    counts = np.full(LENGTH, STREAMS)

    def work(repeats: int) -> None:
        def one(lo: int, hi: int) -> None:
            for j in range(lo, hi):
                _drive(columns[j], off, weights[j], counts, LENGTH, results[j], pos, repeats)

        share(parts, one)

    work(1)
    best = np.inf
    for _ in range(5):
        begin = time.perf_counter()
        work(REPEATS)
        best = min(best, time.perf_counter() - begin)
    return float(parts * REPEATS * STREAMS * LENGTH * 3 / best / 1e9)


ROOMS = {
    "24 KB": (16, 384),
    "0.4 MB": (240, 384),
    "0.7 MB": (480, 384),
    "3 MB": (960, 768),
    "7 MB": (2400, 768),
}
"""How many columns of how many numbers take so much memory."""


@entry
def _combine_often(X, off, W, counts, length, out, pos, many, repeats):  # type: ignore[no-untyped-def]
    for _ in range(repeats):
        combine(X, off, W, many, many, counts, length, out, pos)


@entry
def _add_often(X, each, size, W, states, lengths, groups, out, pos, repeats):  # type: ignore[no-untyped-def]
    for _ in range(repeats):
        add_times(X, each, size, 1, W, 0, states, size * states, lengths, groups, out, pos)


def _best(work: Callable[[int], object], operations: int) -> float:
    """10^9 operations a second, the best of five measurements."""
    repeats, times = max(1, 200_000_000 // operations), []
    work(1)
    for _ in range(5):
        begin = time.perf_counter()
        work(repeats)
        times.append(time.perf_counter() - begin)
    return repeats * operations / min(times) / 1e9


def rates(columns: int, length: int) -> list[float]:
    """Of `combine` for 2, 3, 4 and 6 results, and of `add_times` for 2 and 3."""
    X = np.random.default_rng(0).random(columns * length, dtype=np.float32)
    W, out = np.full(6 * columns, 1e-3, np.float32), np.zeros(6 * length, np.float32)
    off, pos, found = np.arange(columns) * length, np.arange(6) * length, []
    counts = np.full(length, columns)
    for many in (2, 3, 4, 6):
        work = functools.partial(_combine_often, X, off, W, counts, length, out, pos, many)
        found.append(_best(work, columns * length * many))
    for states in (2, 3):
        times = columns // states // 4 * 4
        each, lengths = np.arange(times * states) * length, np.full(times // 4, length)
        given = X, each, times, W, states, lengths, times // 4, out, pos
        found.append(_best(functools.partial(_add_often, *given), times * states * length * states))
    return found


def main() -> None:
    names = [*(f"combine, {many}" for many in (2, 3, 4, 6)), "add_times, 2", "add_times, 3"]
    print("| columns | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for name, (columns, length) in ROOMS.items():
        print(
            f"| {name} | " + " | ".join(f"{rate:.1f}" for rate in rates(columns, length)) + " |", flush=True
        )


if __name__ == "__main__":
    main()
