# mypy: allow-untyped-defs, allow-untyped-calls
"""The gradient of Lang's algorithm by blocks of time steps, compiled.

The equations are those of `backward`. Nothing in them but G itself has to be known step by step: ab needs
only the readings, and the weights WU, WR, CP, E and A need only the chart. So blocks of steps go from the
last to the first, and within a block T = t0+1 .. t1 the rows of G go from the oldest to the newest, by
strips, because B[r; k, u, y] of step t, which row k of G_{t-1} needs, is a sum over older rows. For a strip,

    G_k[i]        += sum_{t > t1} E A_t[k] G_t[i]              for all k in T: a product of matrices
    D[k; t]        = sum_{older i} P_k[i] G_t[i]               for all k of the rows and t in T: likewise

and what is left, the steps of the same block and the pops to rows of the same strip, stays in the cache.
With a window, rows that do not count any more are zeros in G.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine, dots
from ndstack.ops.nondeterministic.cpu.forward import first_of, lowest_of
from ndstack.ops.nondeterministic.cpu.long.forward import STRIP, base_row
from ndstack.ops.nondeterministic.cpu.long.panels import DEPTH, ROWS, groups_of, product, weight_place
from ndstack.ops.runtime.products import copy, fill
from ndstack.ops.runtime.simd import kernel, kernel_loop, maker

CHUNK = 1024
"""How many numbers of a column enter a product of columns at a time."""
GROUPS = STRIP // 4
"""How many groups of four the k of a strip are."""


class Back(NamedTuple):
    """Room for a block of at most `size` steps; n = 1 .. size + 1 stands for the time t0 + n.

    Attributes:
        rows: G, the column (n, b) at (n * K + b) * wide, from row `base_row` on; column 0 is for what
            nobody wants.
        uncovered: B, likewise, column n * Q + r.
        next: [Q * (times + 1) * K], B of the step after the block, from row -1 on.
        uses: E A_t[r; k, u, y] for k in T and t beyond it, for every y as `product` wants it.
        columns: how many columns (t, r) it has room for.
        inner: the same for k = t0 + n and t = t0 + m, at (((n * S + y) * (size + 1) + m) * Q + r) * Q + u.
        older: [S * 4 * Q * GROUPS * size * Q], D, as `dots` leaves it.
        part: one term of it.
        near: P_k for the k and the rows of one strip, column (k - i0) * K + b.
        popped: [Q * room], A of one step.
    """

    size: int
    wide: int
    rows: np.ndarray
    uncovered: np.ndarray
    next: np.ndarray
    uses: np.ndarray
    columns: int
    inner: np.ndarray
    older: np.ndarray
    part: np.ndarray
    near: np.ndarray
    popped: np.ndarray
    panel: np.ndarray
    lengths: np.ndarray
    off: np.ndarray
    skip: np.ndarray
    pos: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


@maker
def make_back(shape, size, times, like):
    """Room for blocks of at most `size` steps in a chart of so many times."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    most = (shape.band + size if shape.band > 0 else times + 1) + STRIP
    wide = CHUNK * ((most * K + CHUNK - 1) // CHUNK) + 48
    columns, groups = times * Q, groups_of(size * Q)
    room = size * K + 64
    streams = max(columns, K + size * Q, 4 * Q * GROUPS, 4 * K) + 8
    products = 4 * max(Q * GROUPS * size * Q, (K + 3) // 4 * K)
    return Back(
        size,
        wide,
        np.zeros((size + 2) * K * wide + 64, like.dtype),
        np.zeros((size + 2) * Q * wide + 64, like.dtype),
        np.zeros(Q * (times + 1) * K, like.dtype),
        np.zeros(S * groups * columns * ROWS, like.dtype),
        columns,
        np.zeros((size + 1) * S * (size + 1) * Q * Q, like.dtype),
        np.zeros(S * products, like.dtype),
        np.zeros(products, like.dtype),
        np.zeros(STRIP * K * STRIP * K + 64, like.dtype),
        np.zeros(Q * room, like.dtype),
        np.zeros(DEPTH * STRIP * K, like.dtype),
        np.zeros(max(Q * GROUPS, K), np.int64),
        np.zeros(streams, np.int64),
        np.zeros(streams, np.int64),
        np.zeros(groups * ROWS + K, np.int64),
        np.zeros((STRIP + size) * K // 4 + 16, np.int64),
        np.zeros((K + size * Q) * max(K, Q), like.dtype),
    )


@kernel
def note_uses(shape, past, weights, t0, t1, last, back):
    """E A_t[r; k, u, y] for k = t0 + 1 .. t1 and t = k + 2 .. last."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    room, popped, each = back.size * K + 64, back.popped, groups_of(back.size * Q) * back.columns * ROWS
    fill(back.counts, 0, back.counts.size, K)
    for t in range(t0 + 3, last + 1):
        lowest, newest = lowest_of(shape, t), t1 if t1 < t - 2 else t - 2
        lowest = lowest if lowest > t0 else t0 + 1
        if lowest > newest:
            break
        for d in range(K):
            place = shape.start[t - 1] + d * shape.stride[t - 1]
            back.off[d] = place + (lowest - first_of(shape, t - 1)) * K
        for r in range(Q):
            back.pos[r] = r * room
        fill(popped, 0, Q * room, 0)
        length = (newest + 1 - lowest) * K
        combine(past.chart, back.off, weights.pop[t], Q, Q, back.counts, length, popped, back.pos)
        for k in range(lowest, newest + 1):
            for y in range(S):
                for r in range(Q):
                    scale = weights.uncover[t, r * S + y]
                    source = r * room + (k - lowest) * K + y
                    inside = ((((k - t0) * S + y) * (back.size + 1) + t - t0) * Q + r) * Q
                    for u in range(Q):
                        x = scale * popped[source + u * S]
                        if t > t1:
                            row = (k - t0 - 1) * Q + u
                            back.uses[y * each + weight_place(back.columns, (t - t1 - 1) * Q + r, row)] = x
                        else:
                            back.inner[inside + u] = x


@kernel
def last_user(shape, t1, last):
    """The last step that can uncover a symbol of a time up to t1."""
    return t1 + shape.band - 1 if shape.band > 0 and t1 + shape.band - 1 < last else last


@kernel
def clear_uses(shape, t0, t1, last, back):
    """Zeros for the pairs of k and t that `note_uses` passes over."""
    S, each = shape.symbols, groups_of(back.size * shape.states) * back.columns * ROWS
    count = (last_user(shape, t1, last) - t1) * shape.states
    for y in range(S):
        for g in range(groups_of((t1 - t0) * shape.states)):
            place = y * each + g * back.columns * ROWS
            fill(back.uses, place, place + count * ROWS, 0)


@kernel_loop
def _begin_column(out, place, K, count, constant, grads, first):
    """out[place + i * K + a] = constant + grads[first + i], for i < count."""
    for i in range(count):
        x = constant + grads[first + i]
        for a in range(K):
            out[place + i * K + a] = x


@kernel
def begin_rows(shape, adjoint, weights, t0, t1, last, grad_attention, back, none):
    """w for all rows of the block, and G of the step after it."""
    K = shape.states * shape.symbols
    base = base_row(shape, t0)
    for t in range(t0 + 1, t1 + 2 if t1 < last else t1 + 1):
        low = first_of(shape, t)
        begin = low if low > base else base
        for b in range(K):
            place = ((t - t0) * K + b) * back.wide
            fill(back.rows, place, place + (begin - base) * K, 0)
            inside = place + (begin - base) * K
            if t <= t1:
                grads = grad_attention[t - 1, b] if grad_attention.size > 0 else none
                _begin_column(back.rows, inside, K, t - begin, weights.ends[t, b], grads, begin + 1)
            else:
                source = shape.start[t] + b * shape.stride[t] + (begin - low) * K
                copy(adjoint.chart[source:], back.rows[inside : inside + (t - begin) * K])
            fill(back.rows, place + (t - base) * K, place + (t1 + STRIP - base) * K, 0)


@kernel
def begin_uncovered(shape, t0, t1, last, back):
    """Zeros for B of the block, and B of the step after it."""
    Q, K = shape.states, shape.states * shape.symbols
    base, size = base_row(shape, t0), (t1 + STRIP - base_row(shape, t0)) * K
    for n in range(1, t1 - t0 + 2):
        for r in range(Q):
            place = (n * Q + r) * back.wide
            fill(back.uncovered, place, place + size, 0)
            if n == t1 - t0 + 1 and t1 < last:
                source = r * (back.next.size // Q) + (base + 1) * K
                copy(back.next[source:], back.uncovered[place : place + (t1 - base) * K])


@kernel
def from_later_blocks(shape, adjoint, t0, t1, last, i0, i1, back):
    """G_k[i] += sum_t E A_t[k] G_t[i], for rows i0 <= i < i1, k in T and t = t1 + 1 .. last."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    base, many, end = base_row(shape, t0), (t1 - t0) * Q, last_user(shape, t1, last)
    end = end if shape.band == 0 or end < i1 - 1 + shape.band else i1 - 1 + shape.band
    each = groups_of(back.size * Q) * back.columns * ROWS
    fill(back.pos, many, groups_of(many) * ROWS, 0)
    for y in range(S):
        for t in range(t1 + 1, end + 1):
            low = first_of(shape, t)
            for r in range(Q):
                c = (t - t1 - 1) * Q + r
                back.off[c] = shape.start[t] + (r * S + y) * shape.stride[t] + (i0 - low) * K
                back.skip[c] = (low - i0) * K if low > i0 else 0
        for k in range(t1 - t0):
            for u in range(Q):
                back.pos[k * Q + u] = ((k + 1) * K + u * S + y) * back.wide + (i0 - base) * K
        product(
            adjoint.chart,
            back.off,
            back.skip,
            0,
            (end - t1) * Q,
            back.uses[y * each :],
            back.columns,
            many,
            (i1 - i0) * K,
            back.rows,
            back.pos,
            back.panel,
        )


@kernel
def older_products(shape, past, t0, t1, i0, i1, back):
    """D[k; t] for the k of rows i0 .. i1 - 1, from all rows before i0."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    base, many, res = base_row(shape, t0), (t1 - t0) * Q, back.older
    size = 4 * Q * GROUPS * many
    fill(res, 0, S * size, 0)
    for y in range(S):
        for first in range(0, (i0 - base) * K, CHUNK):
            length = (i0 - base) * K - first
            fill(back.lengths, 0, Q * GROUPS, CHUNK if length > CHUNK else length)
            for n in range(t1 - t0):
                for r in range(Q):
                    back.pos[n * Q + r] = ((n + 1) * K + r * S + y) * back.wide + first
            for u in range(Q):
                for c in range(STRIP):
                    k = i0 + c if i0 + c < i1 else i1 - 1
                    place = shape.start[k] + (u * S + y) * shape.stride[k]
                    back.off[u * STRIP + c] = place + (base - first_of(shape, k)) * K + first
            dots(past.chart, back.off, back.lengths, Q * GROUPS, back.rows, back.pos, many, back.part)
            for j in range(size):
                res[y * size + j] += back.part[j]
