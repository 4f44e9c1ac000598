# mypy: allow-untyped-defs, allow-untyped-calls
"""Lang's algorithm by blocks of time steps, compiled, for scans over given actions of long strings.

Step by step, the cubic part reads the whole chart once per step. A block T = t0+1 .. t0+b of steps reads it
once per block. Within a block nothing can be normalised, because alpha is known only when all rows are. So
every weight of step t is divided by e^{c_t}, where c_t is an estimate of how much alpha grows, and

    g[t-1, t] = push_t;   z[k, t] = g[k, t-1] pop_t                                        t0 <= k < t-1
    g[i, t]   = g[i, t-1] replace_t + sum_{i < k < t-1} g[i, k] z[k, t]                    t0 <= i < t-1
    R[i, t0]  = P_t0[i] alpha_t0;   X[k, t] = R[k, t-1] pop_t                              i, k < t0
    R[i, t]   = R[i, t-1] replace_t + sum_{i < k < t0} P_k[i] X[k, t] + sum_{t0 <= k < t-1} R[i, k] z[k, t]
    alpha_t   = sum_{i < t0} R[i, t] + sum_{t0 <= i < t} alpha_i g[i, t]

from which P_t = R[., t] / alpha_t and, for the rows of the block, alpha_i g[i, t] / alpha_t. Rows i < t0 go
by strips of `STRIP` rows, from the newest to the oldest, so that X is known when it is used: the sum over the
k of newer strips is a product of matrices, and everything else stays in the cache.

With a window D, row i counts at time t if i >= t - D. Rows are computed from i = t0 + 1 - D on for all steps
of the block; those that do not count any more are left out of alpha and of the chart, and no row that counts
depends on them. Without the bottom fix P_0 is 0, and everything follows from that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine
from ndstack.ops.nondeterministic.cpu.forward import first_of, lowest_of
from ndstack.ops.nondeterministic.cpu.long.panels import DEPTH, ROWS, groups_of, product, weight_place
from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import copy, fill
from ndstack.ops.runtime.simd import kernel, kernel_loop, lanes, maker

STRIP = 32
"""Rows of the chart that are computed together. So many rows are whole vectors, whatever K is."""


class Block(NamedTuple):
    """Room for a block of at most `size` steps; n = 1 .. size stands for the time t0 + n.

    Attributes:
        push, replace, pop: [size + 1, K * K], [size + 1, K * K], [size + 1, K * Q], divided by e^c.
        growth: [size + 1], c.
        alpha: [size + 1, K], relative to time t0; float64.
        inner: g; the column (n, b) begins at (n * K + b) * wide, with row t0.
        popped_inner: z[k, t][(u, y), r] at (((n * S + y) * size + k - t0) * Q + u) * Q + r.
        popped_older: X[k, t][(u, y), r], for every y as `product` wants it.
        columns: how many columns (k, u) it has room for.
        rows: R by strips, see `strip_place`; then P_k for the k and the rows of one strip.
        strips: how many strips there are.
        floor_rows, floor_inner: [size + 1, K], the smallest positive numbers of the columns of R and g.
        least: [1], the smallest product of positive numbers of X and P, or of alpha and g, so far.
    """

    size: int
    push: np.ndarray
    replace: np.ndarray
    pop: np.ndarray
    growth: np.ndarray
    alpha: np.ndarray
    exponents: np.ndarray
    likely: np.ndarray
    inner: np.ndarray
    wide: int
    popped_inner: np.ndarray
    popped_older: np.ndarray
    columns: int
    rows: np.ndarray
    strips: int
    popped: np.ndarray
    panel: np.ndarray
    floor_rows: np.ndarray
    floor_inner: np.ndarray
    least: np.ndarray
    off: np.ndarray
    skip: np.ndarray
    pos: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


@maker
def make_block(shape, size, times, like):
    """Room for blocks of at most `size` steps in a chart of so many times."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    most = shape.band if shape.band > 0 else times + 1
    strips, strip = (most + STRIP - 1) // STRIP, STRIP * K
    wide = 32 * ((size * K + 31) // 32) + 32
    columns = most * Q
    streams = max(K + (size + STRIP) * Q, columns) + 8
    longest = max(strip, wide)
    return Block(
        size,
        np.zeros((size + 1, K * K), like.dtype),
        np.zeros((size + 1, K * K), like.dtype),
        np.zeros((size + 1, K * Q), like.dtype),
        np.zeros(size + 1),
        np.zeros((size + 1, K)),
        np.zeros(2 * K * K + K * Q),
        np.zeros(2 * K),
        np.zeros((size + 1) * K * wide + 64, like.dtype),
        wide,
        np.zeros((size + 1) * S * size * Q * Q, like.dtype),
        np.zeros(S * groups_of(size * Q) * columns * ROWS, like.dtype),
        columns,
        np.zeros((strips * ((size + 1) * K + 1) + strip) * strip + 64, like.dtype),
        strips,
        np.zeros(Q * longest + 64, like.dtype),
        np.zeros(DEPTH * strip, like.dtype),
        np.zeros((size + 1, K)),
        np.zeros((size + 1, K)),
        np.zeros(1),
        np.zeros(streams, np.int64),
        np.zeros(streams, np.int64),
        np.zeros(groups_of(size * Q) * ROWS + K, np.int64),
        np.zeros(longest // 4 + 8, np.int64),
        np.zeros((K + (size + STRIP) * Q) * max(Q, K), like.dtype),
    )


@kernel
def base_row(shape, t0):
    """The oldest row that counts at step t0 + 1."""
    return t0 + 1 - shape.band if shape.band > 0 and t0 + 1 - shape.band > -1 else -1


@kernel
def strip_place(shape, block, strip, column):
    """Where a strip of column n * K + b of R begins; the last column is for what nobody wants."""
    K = shape.states * shape.symbols
    return (strip * ((block.size + 1) * K + 1) + column) * STRIP * K


@kernel
def near_place(shape, block, column):
    """Where P_k[. | b] for the rows of the strip that k belongs to begins, column (k - i0) * K + b."""
    return strip_place(shape, block, block.strips, 0) + column * STRIP * shape.states * shape.symbols


@kernel
def scale_weights(shape, past, t0, count, actions, block):
    """The weights of the block's steps, and c, as if every uncovered symbol were equally likely."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    e, likely, after = block.exponents, block.likely[:K], block.likely[K:]
    for b in range(K):
        likely[b] = block.alpha[0, b]
    for n in range(1, count + 1):
        given = actions[t0 + n - 1]
        best = -math.inf
        for j in range(e.size):
            best = given[j] if given[j] > best else best
        best = best if best > -math.inf else 0.0
        for j in range(e.size):
            e[j] = given[j] - best
        exp_each(e)
        fill(after, 0, K, 0.0)
        for d in range(K):
            for b in range(K):
                after[b] += likely[d] * (e[d * K + b] + e[K * K + d * K + b])
                after[b] += likely[d] * e[2 * K * K + d * Q + b // S] / S
        total = 0.0
        for b in range(K):
            total += after[b]
        total = total if total > 0 else 1.0
        for b in range(K):
            likely[b] = after[b] / total
        for j in range(K * K):
            block.push[n, j] = e[j] / total
            block.replace[n, j] = e[K * K + j] / total
        for j in range(K * Q):
            block.pop[n, j] = e[2 * K * K + j] / total
        block.growth[n] = best + math.log(total)


@kernel
def _pop_columns(X, block, Q, K, weights, length, room):
    """block.popped[r * room + j] = sum_d weights[d * Q + r] X[block.off[d] + j], for j < length."""
    for r in range(Q):
        block.pos[r] = r * room
    fill(block.popped, 0, Q * room, 0)
    fill(block.counts, 0, length // (2 * lanes(X)) + 1, K)
    combine(X, block.off, weights, Q, Q, block.counts, length, block.popped, block.pos)


@kernel
def inner_rows(shape, count, block):
    """g and z."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    g, z, wide, weights = block.inner, block.popped_inner, block.wide, block.weights
    fill(g, 0, (count + 1) * K * wide, 0)
    for n in range(1, count + 1):
        length = (n - 1) * K
        for d in range(K):
            block.off[d] = ((n - 1) * K + d) * wide
        _pop_columns(g, block, Q, K, block.pop[n], length, wide)
        fill(block.counts, 0, length // (2 * lanes(g)) + 1, K + (n - 2) * Q)
        for y in range(S if n > 1 else 0):
            for d in range(K):
                for r in range(Q):
                    weights[d * Q + r] = block.replace[n, d * K + r * S + y]
            for k in range(n - 1):
                for u in range(Q):
                    place = (((n * S + y) * block.size + k) * Q + u) * Q
                    c = K + (k - 1) * Q + u
                    for r in range(Q):
                        z[place + r] = block.popped[r * wide + k * K + u * S + y]
                        if k > 0:
                            weights[c * Q + r] = z[place + r]
                    if k > 0:
                        block.off[c] = (k * K + u * S + y) * wide
            for r in range(Q):
                block.pos[r] = (n * K + r * S + y) * wide
            combine(g, block.off, weights, Q, Q, block.counts, length, g, block.pos)
        for b in range(K):
            for a in range(K):
                g[(n * K + b) * wide + length + a] = block.push[n, a * K + b]


@kernel
def _begin_strip(shape, past, t0, count, strip, i0, i1, block):
    """R[i, t0], zeros for the R to come, and P_k for the k and the rows of the strip."""
    K = shape.states * shape.symbols
    P, rows, size = past.chart, block.rows, STRIP * shape.states * shape.symbols
    fill(rows, strip_place(shape, block, strip, K), strip_place(shape, block, strip, (count + 1) * K), 0)
    for b in range(K):
        source = shape.start[t0] + b * shape.stride[t0] + (i0 - first_of(shape, t0)) * K
        place = strip_place(shape, block, strip, b)
        scale(P, source, P.dtype.type(block.alpha[0, b]), rows, place, (i1 - i0) * K)
        fill(rows, place + (i1 - i0) * K, place + size, 0)
    for k in range(i0 + 1, i1):
        for b in range(K):
            source = shape.start[k] + b * shape.stride[k] + (i0 - first_of(shape, k)) * K
            place = near_place(shape, block, (k - i0) * K + b)
            copy(P[source:], rows[place : place + (k - i0) * K])
            fill(rows, place + (k - i0) * K, place + size, 0)


@kernel_loop
def scale(X, source, factor, out, place, length):
    """out[place + j] = factor X[source + j]."""
    for j in range(length):
        out[place + j] = factor * X[source + j]


@kernel
def _from_newer_strips(shape, past, t0, count, strip, i0, i1, block):
    """R[i, t] += sum_k P_k[i] X[k, t], for rows i0 <= i < i1 and i1 <= k < t0: the bulk of all work."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    base, many = base_row(shape, t0), count * Q
    nowhere = strip_place(shape, block, strip, (block.size + 1) * K)
    each = groups_of(block.size * Q) * block.columns * ROWS
    fill(block.pos, many, groups_of(many) * ROWS, nowhere)
    fill(block.skip, (i1 - base) * Q, (t0 - base) * Q, 0)
    for y in range(S):
        for k in range(i1, t0):
            place = shape.start[k] + (i0 - first_of(shape, k)) * K
            for u in range(Q):
                block.off[(k - base) * Q + u] = place + (u * S + y) * shape.stride[k]
        for n in range(count):
            for r in range(Q):
                block.pos[n * Q + r] = strip_place(shape, block, strip, (n + 1) * K + r * S + y)
        product(
            past.chart,
            block.off,
            block.skip,
            (i1 - base) * Q,
            (t0 - base) * Q,
            block.popped_older[y * each :],
            block.columns,
            many,
            (i1 - i0) * K,
            block.rows,
            block.pos,
            block.panel,
        )


@kernel
def _uncover(shape, past, t0, n, strip, i0, i1, block):
    """X[k, t0 + n] for i0 <= k < i1, from the rows of the time before."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    base, lowest, room = base_row(shape, t0), lowest_of(shape, t0 + n), STRIP * K
    each = groups_of(block.size * Q) * block.columns * ROWS
    for d in range(K):
        block.off[d] = strip_place(shape, block, strip, (n - 1) * K + d)
    _pop_columns(block.rows, block, Q, K, block.pop[n], (i1 - i0) * K, room)
    least, popped, out = block.least[0], block.popped, block.popped_older
    for k in range(i0 if i0 > 0 else 0, i1):
        for r in range(Q):
            for y in range(S):
                place = y * each + weight_place(block.columns, (k - base) * Q, (n - 1) * Q + r)
                source = r * room + (k - i0) * K + y
                for u in range(Q):
                    x = popped[source + u * S]
                    out[place + u * ROWS] = x
                    small = x * past.floor[k, u * S + y]
                    least = small if x > 0 and k >= lowest and small < least else least
    block.least[0] = least


@kernel
def _from_cached_rows(shape, n, strip, i0, i1, block):
    """The rest of R[i, t0 + n] for i0 <= i < i1: replace, pops to the block, and pops to the same strip."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    off, weights, popped, room = block.off, block.weights, block.popped, STRIP * K
    length, step = (i1 - i0) * K, 2 * lanes(block.rows)
    inner = K + (n - 1) * Q
    for tile in range((length + step - 1) // step):
        block.counts[tile] = inner + Q * (i1 - 1 - (i0 + tile * step // K))
    for y in range(S):
        for d in range(K):
            off[d] = strip_place(shape, block, strip, (n - 1) * K + d)
            for r in range(Q):
                weights[d * Q + r] = block.replace[n, d * K + r * S + y]
        for k in range(n - 1):
            for u in range(Q):
                off[K + k * Q + u] = strip_place(shape, block, strip, k * K + u * S + y)
        place = (n * S + y) * block.size * Q * Q
        copy(block.popped_inner[place:], weights[K * Q : inner * Q])
        c = inner
        for k in range(i1 - 1, i0, -1):
            for u in range(Q):
                off[c] = near_place(shape, block, (k - i0) * K + u * S + y)
                for r in range(Q):
                    weights[c * Q + r] = popped[r * room + (k - i0) * K + u * S + y]
                c += 1
        for r in range(Q):
            block.pos[r] = strip_place(shape, block, strip, n * K + r * S + y)
        combine(block.rows, off, weights, Q, Q, block.counts, length, block.rows, block.pos)


@kernel_loop
def _sum(X, first, last):
    """The sum of X[first : last], in float64."""
    total = 0.0
    for j in range(first, last):
        total += X[j]
    return total


@kernel_loop
def smallest_positive(X, first, last, best):
    """The smallest positive number of X[first : last] and `best`."""
    for j in range(first, last):
        x = X[j] if X[j] > 0 else best
        best = x if x < best else best
    return best


@kernel
def older_rows(shape, past, t0, count, block):
    """R, its sums over i and a in `block.alpha`, and its smallest numbers."""
    K = shape.states * shape.symbols
    base = base_row(shape, t0)
    for n in range(count + 1):
        for b in range(K):
            block.floor_rows[n, b] = math.inf
            if n > 0:
                block.alpha[n, b] = 0.0
    block.least[0] = math.inf
    for strip in range((t0 - base + STRIP - 1) // STRIP - 1, -1, -1):
        i0 = base + STRIP * strip
        i1 = i0 + STRIP if i0 + STRIP < t0 else t0
        _begin_strip(shape, past, t0, count, strip, i0, i1, block)
        _from_newer_strips(shape, past, t0, count, strip, i0, i1, block)
        for n in range(count + 1):
            if n > 0:
                _uncover(shape, past, t0, n, strip, i0, i1, block)
                _from_cached_rows(shape, n, strip, i0, i1, block)
            oldest = first_of(shape, t0 + n)
            skip = (oldest - i0 if oldest > i0 else 0) * K
            for b in range(K):
                place = strip_place(shape, block, strip, n * K + b)
                first, last = place + skip, place + (i1 - i0) * K
                least = past.chart.dtype.type(block.floor_rows[n, b])
                block.floor_rows[n, b] = smallest_positive(block.rows, first, last, least)
                if n > 0:
                    block.alpha[n, b] += _sum(block.rows, first, last)
