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
by blocks of `ROW_BLOCK`, from the newest to the oldest, so that X is known when it is used: the sum over the
k of newer row blocks is a product of matrices, and everything else stays in the cache.

The guard: what a product may lose to underflow is at most the smallest normal number, so a bound on the mass
of lost runs follows from how many products there are. A block that drifts too far from 1, or whose bound is
too large, makes `long_block` return False, and the sequence is scanned step by step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.kernels.cpu_blocks import combine
from ndstack.kernels.cpu_forward import clear
from ndstack.kernels.cpu_loss import MARGIN
from ndstack.kernels.cpu_products import ROWS, product
from ndstack.kernels.cpu_simd import kernel, lanes
from ndstack.kernels.exponential_numba import exp_each

ROW_BLOCK = 32
"""Rows of the chart that are computed together. So many rows are whole vectors, whatever K is."""


class Block(NamedTuple):
    """Room for a block of at most `size` steps; n = 1 .. size stands for the time t0 + n.

    Attributes:
        push, replace, pop: [size + 1, K * K], [size + 1, K * K], [size + 1, K * Q], divided by e^c.
        growth: [size + 1], c.
        alpha: [size + 1, K], relative to time t0; float64.
        inner: g; the column (n, b) begins at (n * K + b) * wide, the rows i >= t0.
        popped_inner: z[k, t][(u, y), r] at (((n * S + y) * size + k - t0) * Q + u) * Q + r.
        popped_older: X[k, t][(u, y), r], for every y as `product` wants it; see `place_older`.
        popped: [Q * room], the pops of one step.
    """

    size: int
    push: np.ndarray
    replace: np.ndarray
    pop: np.ndarray
    growth: np.ndarray
    alpha: np.ndarray
    exponents: np.ndarray
    inner: np.ndarray
    wide: int
    popped_inner: np.ndarray
    popped_older: np.ndarray
    columns: int
    popped: np.ndarray
    room: int
    off: np.ndarray
    pos: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


@kernel
def make_block(shape, size, times, like):
    """Room for blocks of at most `size` steps in a chart of so many times."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    wide = 64 * ((size * K + 63) // 64) + 64
    groups = (size * Q + ROWS - 1) // ROWS
    columns = times * Q
    room = max(ROW_BLOCK, size) * K + 64
    streams = max(K + (size + ROW_BLOCK) * Q, columns) + 8
    return Block(
        size,
        np.zeros((size + 1, K * K), like.dtype),
        np.zeros((size + 1, K * K), like.dtype),
        np.zeros((size + 1, K * Q), like.dtype),
        np.zeros(size + 1),
        np.zeros((size + 1, K)),
        np.zeros(2 * K * K + K * Q),
        np.zeros((size + 1) * K * wide, like.dtype),
        wide,
        np.zeros((size + 1) * S * size * Q * Q, like.dtype),
        np.zeros(S * groups * columns * ROWS, like.dtype),
        columns,
        np.zeros(Q * room, like.dtype),
        room,
        np.zeros(streams, np.int64),
        np.zeros(size * Q + K, np.int64),
        np.zeros(room // 4 + 8, np.int64),
        np.zeros((K + (size + ROW_BLOCK) * Q) * max(Q, K), like.dtype),
    )


@kernel
def scale_weights(shape, past, t0, count, actions, block):
    """The weights of the block's steps, and c, as if every uncovered symbol were equally likely."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    likely, after, e = np.exp(past.log_alpha[t0]), np.zeros(K), block.exponents
    for n in range(1, count + 1):
        given = actions[t0 + n - 1]
        best = -math.inf
        for j in range(e.size):
            best = max(best, given[j])
        best = best if best > -math.inf else 0.0
        for j in range(e.size):
            e[j] = given[j] - best
        exp_each(e)
        after[:] = 0
        for d in range(K):
            for b in range(K):
                after[b] += likely[d] * (e[d * K + b] + e[K * K + d * K + b])
            for r in range(Q):
                each = likely[d] * e[2 * K * K + d * Q + r] / S
                for y in range(S):
                    after[r * S + y] += each
        total = after.sum()
        total = total if total > 0 else 1.0
        likely[:] = after / total
        for j in range(K * K):
            block.push[n, j] = e[j] / total
            block.replace[n, j] = e[K * K + j] / total
        for j in range(K * Q):
            block.pop[n, j] = e[2 * K * K + j] / total
        block.growth[n] = best + math.log(total)


@kernel
def pop_columns(X, block, Q, K, weights, length):
    """block.popped[r * room + j] = sum_d weights[d * Q + r] X[block.off[d] + j], for j < length."""
    for r in range(Q):
        block.pos[r] = r * block.room
        block.popped[r * block.room : r * block.room + length + 32] = 0
    block.counts[: length // (2 * lanes(X)) + 1] = K
    combine(X, block.off, weights, Q, Q, block.counts, length, block.popped, block.pos)


@kernel
def inner_rows(shape, count, block):
    """g and z."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    g, z, wide, weights = block.inner, block.popped_inner, block.wide, block.weights
    g[:] = 0
    for n in range(1, count + 1):
        length = (n - 1) * K
        if n > 1:
            for d in range(K):
                block.off[d] = ((n - 1) * K + d) * wide
            pop_columns(g, block, Q, K, block.pop[n], length)
        for y in range(S if n > 1 else 0):
            c = K
            for d in range(K):
                for r in range(Q):
                    weights[d * Q + r] = block.replace[n, d * K + r * S + y]
            for k in range(n - 1):
                for u in range(Q):
                    place = (((n * S + y) * block.size + k) * Q + u) * Q
                    for r in range(Q):
                        z[place + r] = block.popped[r * block.room + k * K + u * S + y]
                        weights[c * Q + r] = z[place + r]
                    if k > 0:
                        block.off[c] = (k * K + u * S + y) * wide
                        c += 1
            for d in range(K):
                block.off[d] = ((n - 1) * K + d) * wide
            for r in range(Q):
                block.pos[r] = (n * K + r * S + y) * wide
            block.counts[: length // (2 * lanes(g)) + 1] = c
            combine(g, block.off, weights, Q, Q, block.counts, length, g, block.pos)
        for b in range(K):
            for a in range(K):
                g[(n * K + b) * wide + length + a] = block.push[n, a * K + b]


@kernel
def place_older(shape, block, y, column, row):
    """Where `block.popped_older` has the weight of a column (k, u) for a row (n, r), for symbol y."""
    groups = (block.size * shape.states + ROWS - 1) // ROWS
    return ((y * groups + row // ROWS) * block.columns + column) * ROWS + row % ROWS


@kernel
def from_newer_rows(shape, past, t0, count, i0, i1, block):
    """R[i, t] += sum_k P_k[i] X[k, t], for rows i0 <= i < i1 and i1 <= k < t0: the bulk of all work."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    start, stride = shape.start, shape.stride
    for y in range(S):
        for k in range(i1, t0):
            for u in range(Q):
                block.off[k * Q + u] = start[k] + (u * S + y) * stride[k] + (i0 + 1) * K
        for n in range(1, count + 1):
            t = t0 + n
            for r in range(Q):
                block.pos[(n - 1) * Q + r] = start[t] + (r * S + y) * stride[t] + (i0 + 1) * K
        own = block.popped_older[place_older(shape, block, y, 0, 0) :]
        product(
            past.chart,
            block.off,
            i1 * Q,
            t0 * Q,
            own,
            block.columns,
            count * Q,
            block.counts,
            (i1 - i0) * K,
            past.chart,
            block.pos,
        )


@kernel
def uncover(shape, past, t0, n, i0, i1, block):
    """X[k, t0 + n] for i0 <= k < i1, from the rows of the time before."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    t = t0 + n
    for d in range(K):
        block.off[d] = shape.start[t - 1] + d * shape.stride[t - 1] + (i0 + 1) * K
        joint = block.alpha[0, d] if n == 1 else 1.0
        for r in range(Q):
            block.weights[d * Q + r] = joint * block.pop[n, d * Q + r]
    pop_columns(past.chart, block, Q, K, block.weights, (i1 - i0) * K)
    for k in range(max(i0, 0), i1):
        for y in range(S):
            for r in range(Q):
                place = place_older(shape, block, y, k * Q, (n - 1) * Q + r)
                source = r * block.room + (k - i0) * K + y
                for u in range(Q):
                    block.popped_older[place + u * ROWS] = block.popped[source + u * S]


@kernel
def from_cached_rows(shape, past, t0, n, i0, i1, block):
    """The rest of R[i, t0 + n] for i0 <= i < i1: replace, pops to the same rows, and pops to the block."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    P, t, base = past.chart, t0 + n, (i0 + 1) * K
    off, weights, z = block.off, block.weights, block.popped_inner
    start, stride = shape.start, shape.stride
    length, step = (i1 - i0) * K, 2 * lanes(past.chart)
    for tile in range((length + step - 1) // step):
        block.counts[tile] = K + Q * (n - 1 + max(0, i1 - 1 - (i0 + tile * step // K)))
    for y in range(S):
        for d in range(K):
            off[d] = start[t - 1] + d * stride[t - 1] + base
            joint = block.alpha[0, d] if n == 1 else 1.0
            for r in range(Q):
                weights[d * Q + r] = joint * block.replace[n, d * K + r * S + y]
        c = K
        for k in range(n - 1):
            for u in range(Q):
                off[c] = start[t0 + k] + (u * S + y) * stride[t0 + k] + base
                joint = block.alpha[0, u * S + y] if k == 0 else 1.0
                place = (((n * S + y) * block.size + k) * Q + u) * Q
                for r in range(Q):
                    weights[c * Q + r] = joint * z[place + r]
                c += 1
        for k in range(i1 - 1, i0, -1):
            for u in range(Q):
                off[c] = start[k] + (u * S + y) * stride[k] + base
                for r in range(Q):
                    weights[c * Q + r] = block.popped[r * block.room + (k - i0) * K + u * S + y]
                c += 1
        for r in range(Q):
            block.pos[r] = start[t] + (r * S + y) * stride[t] + base
        combine(P, off, weights, Q, Q, block.counts, length, P, block.pos)


@kernel
def older_rows(shape, past, t0, count, block):
    """R, in its place in the chart, and its sums over i and a in `block.alpha`."""
    K = shape.states * shape.symbols
    P = past.chart
    block.alpha[1:] = 0
    for n in range(1, count + 1):
        clear(shape, past, t0 + n)
    for m in range(t0 // ROW_BLOCK, -1, -1):
        i0 = ROW_BLOCK * m - 1
        i1 = min(i0 + ROW_BLOCK, t0)
        from_newer_rows(shape, past, t0, count, i0, i1, block)
        for n in range(1, count + 1):
            uncover(shape, past, t0, n, i0, i1, block)
            from_cached_rows(shape, past, t0, n, i0, i1, block)
            for b in range(K):
                place = shape.start[t0 + n] + b * shape.stride[t0 + n] + (i0 + 1) * K
                block.alpha[n, b] += P[place : place + (i1 - i0) * K].sum()


@kernel
def find_alpha(shape, past, t0, count, block):
    """alpha of the block's times, into the chart's logarithms. Returns whether no number drifted too far."""
    K = shape.states * shape.symbols
    alpha = block.alpha
    least = MARGIN * float(np.finfo(past.chart.dtype).tiny)
    before = alpha[0].sum()
    for n in range(1, count + 1):
        for b in range(K):
            column = (n * K + b) * block.wide
            for i in range(n):
                for a in range(K):
                    alpha[n, b] += alpha[i, a] * block.inner[column + i * K + a]
            if not (alpha[n, b] == 0.0 or least < alpha[n, b] < 1 / least):
                return False
        total = alpha[n].sum()
        if total == 0.0:
            return False
        for b in range(K):
            x = math.log(alpha[n, b]) if alpha[n, b] > 0 else -math.inf
            past.log_total[t0 + n, b] = x - math.log(before) + block.growth[n]
            past.log_alpha[t0 + n, b] = x - math.log(total)
        before = total
    return True


@kernel
def bound_loss(shape, past, t0, count, block, limit, strict):
    """Update the bound on lost mass (see `cpu_loss`). Returns False if more than e^limit may be lost."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    lost = np.exp(past.lost[:K])
    after = np.zeros(K)
    before, top = block.alpha[0].sum(), 1.0
    for n in range(1, count + 1):
        total = block.alpha[n].sum()
        top = max(top, total)
        products = (t0 + n + 1.0) ** 2 * K * Q
        fresh = products * top * MARGIN * float(np.finfo(past.chart.dtype).tiny) / total
        after[:] = 0
        for d in range(K):
            for b in range(K):
                change = block.push[n, d * K + b] + block.replace[n, d * K + b] + block.pop[n, d * Q + b // S]
                after[b] += lost[d] * change
        lost[:] = after * (before / total) + fresh
        if strict:
            for b in range(K):
                if lost[b] > math.exp(limit) * block.alpha[n, b] / total:
                    return False
        if not lost.sum() <= math.exp(limit):
            return False
        before = total
    past.lost[:K] = np.log(lost)
    return True


@kernel
def normalise(shape, past, t0, count, block):
    """P_t from R, g and alpha."""
    K = shape.states * shape.symbols
    P = past.chart
    for n in range(1, count + 1):
        for b in range(K):
            inverse = 1 / block.alpha[n, b] if block.alpha[n, b] > 0 else 0.0
            place = shape.start[t0 + n] + b * shape.stride[t0 + n]
            scale = P.dtype.type(inverse)
            column = P[place : place + (t0 + 1) * K]
            for j in range(column.size):
                column[j] *= scale
            place += (t0 + 1) * K
            source = (n * K + b) * block.wide
            for i in range(n):
                for a in range(K):
                    P[place + i * K + a] = block.alpha[i, a] * inverse * block.inner[source + i * K + a]


@kernel
def long_block(shape, past, t0, count, actions, block, limit, strict):
    """Steps t0 + 1 .. t0 + count of one sequence. Returns False if they have to be done one by one.

    Args:
        actions: [n, A], of the whole sequence.
        block: has room for `count` steps.
        limit, strict: as for `cpu_forward.advance`.
    """
    block.alpha[0] = np.exp(past.log_alpha[t0])
    scale_weights(shape, past, t0, count, actions, block)
    inner_rows(shape, count, block)
    older_rows(shape, past, t0, count, block)
    if not (
        find_alpha(shape, past, t0, count, block) and bound_loss(shape, past, t0, count, block, limit, strict)
    ):
        return False
    normalise(shape, past, t0, count, block)
    return True
