# mypy: allow-untyped-defs, allow-untyped-calls
"""Lang's algorithm in log space by blocks of numbers (see `scaled_sums`), for charts without a window."""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.nondeterministic.cpu.scaled_sums import (
    ROWS,
    Chart,
    Work,
    add_logs,
    block_at,
    keep_block,
    largest,
    log_add,
    log_total,
    logarithm,
    sum_blocks,
)
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import entry, kernel

LEAST = math.exp(-600.0)
"""A sum of products of numbers up to 1 that is larger has lost nothing to underflow."""


@kernel
def _extend(chart, work, Q, S, t, pop):
    """gamma'[. -> t], from the column of time t - 1."""
    K, n = Q * S, chart.times
    for block in range((t - 1) // ROWS + 1):
        live = min(ROWS, t - block * ROWS) * K
        for r in range(Q):
            logs = work.logs[r]
            for d in range(K):
                logs[d * n + t - 1] = chart.scales[block, d * n + t - 1] + pop[d * Q + r]
            scale = sum_blocks(chart, work, logs, block, Q, S, t, -1, live)
            for place in range(K if block == 0 else 0, live):
                x = log_total(work, place)
                k = block * ROWS - 1 + place // K
                work.extended[r, place % K * n + k] = scale + x if x > -math.inf else x


@kernel
def _column(chart, work, Q, S, t, push, replace):
    """gamma[. -> t]."""
    K, n = Q * S, chart.times
    for block in range(t // ROWS + 1):
        rows = min(ROWS, t - block * ROWS)  # those of times before t - 1, which has only pushes
        for r in range(Q):
            for b in range(K):
                add_logs(
                    chart.scales[block], work.extended[r], b * n + block * ROWS, b * n + t - 1, work.logs[r]
                )
        for y in range(S):  # all r of a y, which have the same blocks, while these are in the cache
            for r in range(Q):
                b = r * S + y
                for d in range(K):
                    known = chart.scales[block, d * n + t - 1] if rows > 0 else -math.inf
                    work.logs[r, d * n + t - 1] = known + replace[d * K + b]
                scale = sum_blocks(chart, work, work.logs[r], block, Q, S, t, y, rows * K)
                if rows < ROWS:
                    shift = scale if scale > -math.inf else 0.0
                    for a in range(K):
                        work.exact[rows * K + a] = push[a * K + b] - shift
                    scale = shift
                keep_block(chart, work, block, t, b, K, scale)


@kernel
def _end(chart, work, t, K, places):
    """log alpha[t] and, if they have room, log weights by the place of the top symbol, [K, times]."""
    now = (t + 1) * K
    fill(chart.alpha, now, now + K, -math.inf)
    for block in range(t // ROWS + 1):
        first, rows = block * ROWS * K, min(ROWS, t + 1 - block * ROWS)
        best = largest(chart.alpha, first, first + rows * K)
        fill(work.exact, 0, work.exact.size, 0.0)
        for place in range(rows * K if best > -math.inf else 0):
            work.exact[place] = math.exp(chart.alpha[first + place] - best)
        for b in range(K):
            term = b * chart.times + t
            scale = best + chart.scales[block, term]
            if scale > -math.inf:
                x = _end_block(chart, work, block, term, K, rows, scale, best, places[b])
                chart.alpha[now + b] = log_add(chart.alpha[now + b], x)


@kernel
def _end_block(chart, work, block, term, K, rows, scale, best, places):
    """The logarithm of what a block contributes to alpha[t, b].

    Args:
        scale: the logarithm of the largest factors; those of alpha are in `work.exact`.
        best: the largest log alpha of the block.
        places: where to write the parts of all times i, if there is room.
    """
    at, total, first = block_at(chart, block, term, K), 0.0, block * ROWS
    if not chart.wide[block, term]:
        for row in range(rows):
            part = 0.0
            for place in range(row * K, row * K + K):
                part += work.exact[place] * chart.numbers[at + place]
            total += part
            if places.size > 0:
                places[first + row] = scale + math.log(part) if part > 0 else -math.inf
        if total > LEAST:
            return scale + math.log(total)
    result = -math.inf
    for row in range(rows):
        part = -math.inf
        for place in range(row * K, row * K + K):
            x = chart.alpha[first * K + place] + logarithm(chart, block, term, K, place)
            part = log_add(part, x + (scale - best)) if x > -math.inf else part
        result = log_add(result, part)
        if places.size > 0:
            places[first + row] = part
    return result


@entry
def advance(lo, hi, Q, S, time, actions, numbers, scales, wide, alpha, places):
    """Further steps of sequences lo .. hi - 1 of a batch.

    Args:
        time: how many steps there have been.
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
        numbers, scales, wide, alpha: with a batch, [B, ...], what `Chart` has of each sequence.
        places: [B, n, K, time + n + 1], to be written; its last size is 0 if that is not wanted.
    """
    K, steps = Q * S, actions.shape[1]
    size, block = scales.shape[2], ROWS * K
    work = Work(
        np.empty((Q, size)), np.empty((Q, size)), np.empty(size, np.int64), np.empty(size),
        np.empty(block), np.empty(block), np.empty(block),
    )  # fmt: skip
    for s in range(lo, hi):
        chart = Chart(size // K, numbers[s], scales[s], wide[s], alpha[s])
        for j in range(steps):
            t, given = time + j + 1, actions[s, j]
            _extend(chart, work, Q, S, t, given[2 * K * K :])
            _column(chart, work, Q, S, t, given[: K * K], given[K * K : 2 * K * K])
            _end(chart, work, t, K, places[s, j])
