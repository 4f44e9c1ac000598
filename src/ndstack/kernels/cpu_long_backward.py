# mypy: allow-untyped-defs, allow-untyped-calls
"""The gradient of Lang's algorithm by blocks of time steps, compiled.

The equations are those of `cpu_backward`. Nothing in them but G itself has to be known step by step: ab needs
only the readings, and the weights WU, WR, CP, E and A need only the chart. So blocks of steps go from the
last to the first, and within a block T = t0+1 .. t1 the rows of G go from the oldest to the newest, by blocks
of `ROW_BLOCK`, because B[r; k, u, y] of step t, which row k of G_{t-1} needs, is a sum over older rows. For
one block of rows,

    G_k[i]        += sum_{t > t1} E A_t[k] G_t[i]              for all k in T: a product of matrices
    D[k; t]        = sum_{older i} P_k[i] G_t[i]               for all k of the rows and t in T: likewise

and what is left, the steps of the same block and the pops to rows of the same row block, stays in the cache.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.kernels.cpu_blocks import combine, dots
from ndstack.kernels.cpu_long_forward import ROW_BLOCK
from ndstack.kernels.cpu_products import ROWS, add_dots, product
from ndstack.kernels.cpu_simd import kernel, lanes
from ndstack.kernels.exponential_numba import exp_each

GROUPS = ROW_BLOCK // 4 + 1
"""How many groups of four times the k of a row block can belong to."""


class Weights(NamedTuple):
    """The weights of all steps of a sequence.

    Attributes:
        push, replace: [times, K * K], WU and WR, at d * K + b.
        pop: [times, K * Q], CP, at d * Q + r.
        uncover: [times, K], E.
    """

    push: np.ndarray
    replace: np.ndarray
    pop: np.ndarray
    uncover: np.ndarray


class Back(NamedTuple):
    """Room for a block of at most `size` steps; n = 0 .. size stands for the time t0 + n.

    Attributes:
        uses: E A_t[r; k, u, y] for k in T and t beyond it, for every y as `product` wants it.
        inner: the same for t in T too, at (((n * S + y) * (size + 1) + m) * Q + r) * Q + u, k = t0 + n,
            t = t0 + m.
        uncovered: [size + 2, Q * room], B of the block's steps and of the step after it, for one row block.
        next: [Q * rows], B of the first step of the block that was done last, for all rows.
        scratch: [size * Q * ROW_BLOCK * K], rows that overlap the block.
        older: [S * Q * 4 * GROUPS * size * Q], D.
    """

    size: int
    uses: np.ndarray
    columns: int
    inner: np.ndarray
    uncovered: np.ndarray
    room: int
    next: np.ndarray
    rows: int
    scratch: np.ndarray
    older: np.ndarray
    part: np.ndarray
    popped: np.ndarray
    moved: np.ndarray
    lengths: np.ndarray
    off: np.ndarray
    pos: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


@kernel
def make_back(shape, size, times, like):
    """Room for blocks of at most `size` steps in a chart of so many times."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    groups = (size * Q + ROWS - 1) // ROWS
    columns = times * Q
    room = max(ROW_BLOCK, size) * K + 64
    rows = (times + ROW_BLOCK) * K + 64
    products = 4 * max(GROUPS * max(size * Q, K), (K + 3) // 4 * K)
    return Back(
        size,
        np.zeros(S * groups * columns * ROWS, like.dtype),
        columns,
        np.zeros((size + 1) * S * (size + 1) * Q * Q, like.dtype),
        np.zeros((size + 2, Q * room), like.dtype),
        room,
        np.zeros(Q * rows, like.dtype),
        rows,
        np.zeros(size * Q * ROW_BLOCK * K + 64, like.dtype),
        np.zeros(S * Q * products, like.dtype),
        np.zeros(products, like.dtype),
        np.zeros(Q * room, like.dtype),
        np.zeros(4 * GROUPS + size * Q + K, np.int64),
        np.zeros(max(GROUPS, K), np.int64),
        np.zeros(max(columns, K + size * Q, 4 * GROUPS) + 8, np.int64),
        np.zeros(size * Q + K, np.int64),
        np.zeros(room // 4 + 8, np.int64),
        np.zeros((K + size * Q) * max(K, Q), like.dtype),
    )


@kernel
def make_weights(shape, past, steps, actions):
    """WU, WR, CP and E of all steps, from what the forward pass left."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    dtype = past.chart.dtype
    found = Weights(
        np.zeros((steps + 1, K * K), dtype),
        np.zeros((steps + 1, K * K), dtype),
        np.zeros((steps + 1, K * Q), dtype),
        np.zeros((steps + 1, K), dtype),
    )
    e = np.zeros(2 * K * K + K * Q + K)
    best = np.zeros(Q)
    seen = np.zeros((K, S))
    for t in range(1, steps + 1):
        given, before, total = actions[t - 1], past.log_alpha[t - 1], past.log_total[t]
        stands = t > 1 or shape.fix
        _covered(shape, past, t, seen)
        for r in range(Q):
            best[r] = -math.inf
            for d in range(K):
                best[r] = max(best[r], before[d] + given[2 * K * K + d * Q + r])
        for d in range(K):
            for b in range(K):
                top = total[b] if total[b] > -math.inf else math.inf
                e[d * K + b] = before[d] + given[d * K + b] - top
                e[K * K + d * K + b] = before[d] + given[K * K + d * K + b] - top if stands else -math.inf
            for r in range(Q):
                top = best[r] if best[r] > -math.inf else 0.0
                e[2 * K * K + d * Q + r] = before[d] + given[2 * K * K + d * Q + r] - top
        for b in range(K):
            e[2 * K * K + K * Q + b] = best[b // S] - total[b] if total[b] > -math.inf else -math.inf
        exp_each(e)
        found.push[t] = e[: K * K]
        found.replace[t] = e[K * K : 2 * K * K]
        found.pop[t] = e[2 * K * K : 2 * K * K + K * Q]
        for r in range(Q):
            for y in range(
                S
            ):  # a pop that uncovers nothing is no part of the total, and may exceed it by far
                mass = 0.0
                for d in range(K):
                    mass += seen[d, y] * found.pop[t, d * Q + r]
                found.uncover[t, r * S + y] = e[2 * K * K + K * Q + r * S + y] if mass > 0 else 0.0
    return found


@kernel
def _covered(shape, past, t, seen):
    """seen[d, y] = sum_{k, u} P_{t-1}[k, (u, y) | d] over the k that a pop at step t can uncover."""
    S = shape.symbols
    K = shape.states * S
    lowest = 0 if shape.fix else 1
    sums = np.zeros(K)
    for d in range(K):
        sums[:] = 0
        place = shape.start[t - 1] + d * shape.stride[t - 1]
        for k in range(lowest, t - 1):
            for c in range(K):
                sums[c] += past.chart[place + (k + 1) * K + c]
        seen[d] = 0
        for c in range(K):
            seen[d, c % S] += sums[c]


@kernel
def note_uses(shape, past, weights, t0, t1, last, back):
    """E A_t[r; k, u, y] for k = t0 + 1 .. t1 and t = k + 2 .. last."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    groups = (back.size * Q + ROWS - 1) // ROWS
    span, room, popped = back.size + 1, back.room, back.popped
    for y in range(S):  # step t1 + 1 uncovers nothing that was pushed at time t1
        for u in range(Q):
            row = (t1 - t0 - 1) * Q + u
            place = (y * groups + row // ROWS) * back.columns * ROWS + row % ROWS
            for r in range(Q):
                back.uses[place + r * ROWS] = 0
    for t in range(t0 + 3, last + 1):
        newest = min(t1, t - 2)
        length = (newest - t0) * K
        for d in range(K):
            back.off[d] = shape.start[t - 1] + d * shape.stride[t - 1] + (t0 + 2) * K
        for r in range(Q):
            back.pos[r] = r * room
            popped[r * room : r * room + length + 32] = 0
        back.counts[: length // (2 * lanes(past.chart)) + 1] = K
        combine(past.chart, back.off, weights.pop[t], Q, Q, back.counts, length, popped, back.pos)
        for k in range(t0 + 1, newest + 1):
            for y in range(S):
                for r in range(Q):
                    scale = weights.uncover[t, r * S + y]
                    source = r * room + (k - t0 - 1) * K + y
                    if t > t1:
                        column = (t - t1 - 1) * Q + r
                        for u in range(Q):
                            row = (k - t0 - 1) * Q + u
                            place = ((y * groups + row // ROWS) * back.columns + column) * ROWS + row % ROWS
                            back.uses[place] = scale * popped[source + u * S]
                    else:
                        place = ((((k - t0) * S + y) * span + (t - t0)) * Q + r) * Q
                        for u in range(Q):
                            back.inner[place + u] = scale * popped[source + u * S]


@kernel
def from_later_blocks(shape, adjoint, t0, t1, last, i0, i1, back):
    """G_k[i] += sum_t E A_t[k] G_t[i], for rows i0 <= i < i1, k in T and t = t1 + 1 .. last."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    G, length, base = adjoint.chart, (i1 - i0) * K, (i0 + 1) * K
    groups = (back.size * Q + ROWS - 1) // ROWS
    start, stride = shape.start, shape.stride
    direct = i1 <= t0 + 1
    count = t1 - t0
    for y in range(S):
        for t in range(t1 + 1, last + 1):
            for r in range(Q):
                back.off[(t - t1 - 1) * Q + r] = start[t] + (r * S + y) * stride[t] + base
        for k in range(t0 + 1, t1 + 1):
            for u in range(Q):
                row = (k - t0 - 1) * Q + u
                place = start[k] + (u * S + y) * stride[k] + base
                back.pos[row] = place if direct else row * ROW_BLOCK * K
        own = back.uses[y * groups * back.columns * ROWS :]
        out = G if direct else back.scratch
        if not direct:
            back.scratch[:] = 0
        later = (last - t1) * Q
        product(G, back.off, 0, later, own, back.columns, count * Q, back.counts, length, out, back.pos)
        for row in range(0 if direct else count * Q):
            k, u = t0 + 1 + row // Q, row % Q
            place = start[k] + (u * S + y) * stride[k] + base
            for j in range((min(i1, k) - i0) * K):
                G[place + j] += back.scratch[row * ROW_BLOCK * K + j]


@kernel
def older_products(shape, past, adjoint, t0, t1, i0, i1, back):
    """D[k; t] for the k of rows i0 .. i1 - 1, from all rows before i0."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    count = t1 - t0
    size = 4 * GROUPS * count * Q
    first = max(i0, 0) - max(i0, 0) % 4
    groups = (i1 - first + 3) // 4
    for y in range(S):
        for t in range(t0 + 1, t1 + 1):
            for r in range(Q):
                back.pos[(t - t0 - 1) * Q + r] = shape.start[t] + (r * S + y) * shape.stride[t]
        for u in range(Q):
            for c in range(4 * groups):
                k = min(max(first + c, max(i0, 0)), i1 - 1)
                back.off[c] = shape.start[k] + (u * S + y) * shape.stride[k]
            res = back.older[(y * Q + u) * size : (y * Q + u + 1) * size]
            res[:] = 0
            add_dots(
                past.chart,
                back.off,
                groups,
                (i0 + 1) * K,
                adjoint.chart,
                back.pos,
                count * Q,
                back.moved,
                back.lengths,
                back.part,
                res,
            )


@kernel
def gather_rows(shape, adjoint, weights, t0, t1, last, t, i0, length, back):
    """Add to the rows of G_t from i0 on what steps t+1 .. t1 of the block, or step t1+1, say about them."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    G, base, off, w = adjoint.chart, (i0 + 1) * K, back.off, back.weights
    start, stride = shape.start, shape.stride
    if t == last:
        return
    tiles = length // (2 * lanes(G)) + 1
    for y in range(S):
        for b in range(K):
            off[b] = start[t + 1] + b * stride[t + 1] + base
            for u in range(Q):
                w[b * Q + u] = weights.replace[t + 1, (u * S + y) * K + b]
        c = K
        for later in range(t + 2, t1 + 1):
            place = (((t - t0) * S + y) * (back.size + 1) + (later - t0)) * Q * Q
            for r in range(Q):
                off[c] = start[later] + (r * S + y) * stride[later] + base
                for u in range(Q):
                    w[c * Q + u] = back.inner[place + r * Q + u]
                c += 1
        for u in range(Q):
            back.pos[u] = start[t] + (u * S + y) * stride[t] + base
        back.counts[:tiles] = c
        combine(G, off, w, Q, Q, back.counts, length, G, back.pos)
    back.counts[:tiles] = Q
    for r in range(Q):
        off[r] = r * back.room
        for d in range(K):
            w[r * K + d] = weights.pop[t + 1, d * Q + r]
    for d in range(K):
        back.pos[d] = start[t] + d * stride[t] + base
    combine(back.uncovered[t + 1 - t0], off, w, K, K, back.counts, length, G, back.pos)


@kernel
def uncover_rows(shape, past, adjoint, weights, t0, t1, t, i0, i1, back):
    """B[r; k, u, y] of step t for the k of rows i0 .. i1 - 1."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    count = t1 - t0
    size = 4 * GROUPS * count * Q
    lowest = max(i0, 0)
    first, end = lowest - lowest % 4, min(i1, t - 1)
    out = back.uncovered[t - t0]
    out[:] = 0
    groups = (end - first + 3) // 4 if end > lowest else 0
    for g in range(groups):
        back.lengths[g] = max(0, min(first + 4 * g + 3, end - 1) - i0) * K
    for y in range(S):
        for r in range(Q):
            back.pos[r] = shape.start[t] + (r * S + y) * shape.stride[t] + (i0 + 1) * K
        for u in range(Q if groups > 0 else 0):
            b = u * S + y
            for c in range(4 * groups):
                k = first + c
                back.off[c] = shape.start[k] + b * shape.stride[k] + (i0 + 1) * K
            dots(past.chart, back.off, back.lengths, groups, adjoint.chart, back.pos, Q, back.part)
            for r in range(Q):
                row = (t - t0 - 1) * Q + r
                scale = weights.uncover[t, r * S + y]
                for k in range(lowest, end):
                    c = k - first
                    older = back.older[(y * Q + u) * size + 4 * (c // 4 * count * Q + row) + c % 4]
                    own = back.part[4 * (c // 4 * Q + r) + c % 4] if k > i0 else 0.0
                    out[r * back.room + (k - i0) * K + b] = scale * (older + own)


@kernel
def products_with_previous(shape, past, t, i0, Y, length, many, back, res):
    """res[d * many + r] += sum over rows of P_{t-1}[. | d] Y[back.pos[r] + .]."""
    K = shape.states * shape.symbols
    groups = (K + 3) // 4
    for g in range(groups):
        back.lengths[g] = length
        for c in range(4):
            d = min(4 * g + c, K - 1)
            back.off[4 * g + c] = shape.start[t - 1] + d * shape.stride[t - 1] + (i0 + 1) * K
    dots(past.chart, back.off, back.lengths, groups, Y, back.pos, many, back.part)
    for d in range(K):
        for r in range(many):
            res[d * many + r] += back.part[4 * (d // 4 * many + r) + d % 4]


@kernel
def take_next(shape, t0, t1, i0, i1, back):
    """B of step t1 + 1, for the rows i0 .. i1 - 1, from the block that came before."""
    Q, K = shape.states, shape.states * shape.symbols
    into = back.uncovered[t1 + 1 - t0]
    into[:] = 0
    for r in range(Q):
        for j in range((i1 - i0) * K):
            into[r * back.room + j] = back.next[r * back.rows + (i0 + 1) * K + j]


@kernel
def give_next(shape, i0, i1, back):
    """Keep B of step t0 + 1 for the block to come."""
    Q, K = shape.states, shape.states * shape.symbols
    for r in range(Q):
        for j in range((i1 - i0) * K):
            back.next[r * back.rows + (i0 + 1) * K + j] = back.uncovered[1, r * back.room + j]


@kernel
def long_block_back(shape, past, adjoint, weights, t0, t1, last, back, grads):
    """The gradient of steps t0 + 1 .. t1, those after t1 being done.

    Args:
        last: the last step of all.
        grads: [n, A], of the whole sequence, zeros here.
    """
    Q, S = shape.states, shape.symbols
    K = Q * S
    note_uses(shape, past, weights, t0, t1, last, back)
    for m in range(t1 // ROW_BLOCK + 1):
        i0 = ROW_BLOCK * m - 1
        i1 = min(i0 + ROW_BLOCK, t1)
        if i1 <= i0:
            break
        from_later_blocks(shape, adjoint, t0, t1, last, i0, i1, back)
        older_products(shape, past, adjoint, t0, t1, i0, i1, back)
        take_next(shape, t0, t1, i0, i1, back)
        for t in range(t1, max(t0, i0), -1):
            length = (min(i1, t) - i0) * K
            gather_rows(shape, adjoint, weights, t0, t1, last, t, i0, length, back)
            uncover_rows(shape, past, adjoint, weights, t0, t1, t, i0, i1, back)
            length = (min(i1, t - 1) - i0) * K
            if length > 0:
                for b in range(K):
                    back.pos[b] = shape.start[t] + b * shape.stride[t] + (i0 + 1) * K
                given = grads[t - 1, K * K : 2 * K * K]
                products_with_previous(shape, past, t, i0, adjoint.chart, length, K, back, given)
                for r in range(Q):
                    back.pos[r] = r * back.room
                given = grads[t - 1, 2 * K * K :]
                products_with_previous(shape, past, t, i0, back.uncovered[t - t0], length, Q, back, given)
        give_next(shape, i0, i1, back)
    for t in range(t0 + 1, t1 + 1):
        for b in range(K):
            place = shape.start[t] + b * shape.stride[t] + t * K
            for a in range(K):
                grads[t - 1, a * K + b] = adjoint.chart[place + a] * weights.push[t, a * K + b]
        for j in range(K * K):
            grads[t - 1, K * K + j] *= weights.replace[t, j]
        for j in range(K * Q):
            grads[t - 1, 2 * K * K + j] *= weights.pop[t, j]
