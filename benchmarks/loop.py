"""The cubic loop of the compiled kernels by itself, on columns as RNS 3-3 at n = 80 has them."""

from __future__ import annotations

import time

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine
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
