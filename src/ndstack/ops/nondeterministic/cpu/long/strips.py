# mypy: allow-untyped-defs, allow-untyped-calls
"""The part of the gradient by blocks of time steps that stays in the cache (see `backward`)."""

from __future__ import annotations

from ndstack.ops.nondeterministic.cpu.blocks import combine, dots
from ndstack.ops.nondeterministic.cpu.forward import first_of, lowest_of
from ndstack.ops.nondeterministic.cpu.long.backward import (
    GROUPS,
    begin_rows,
    begin_uncovered,
    clear_uses,
    from_later_blocks,
    last_user,
    note_uses,
    older_products,
)
from ndstack.ops.nondeterministic.cpu.long.forward import STRIP, base_row
from ndstack.ops.runtime.products import copy, fill
from ndstack.ops.runtime.simd import kernel, lanes


@kernel
def _begin_strip(shape, past, i0, i1, back):
    """P_k for the k and the rows of the strip."""
    K = shape.states * shape.symbols
    P, near, size = past.chart, back.near, STRIP * shape.states * shape.symbols
    for k in range(i0 + 1, i1):
        low = first_of(shape, k)
        begin = low if low > i0 else i0
        for b in range(K):
            source = shape.start[k] + b * shape.stride[k] + (begin - low) * K
            place = ((k - i0) * K + b) * size
            fill(near, place, place + (begin - i0) * K, 0)
            copy(P[source:], near[place + (begin - i0) * K : place + (k - i0) * K])
            fill(near, place + (k - i0) * K, place + size, 0)


@kernel
def _gather_rows(shape, weights, t0, t1, last, t, i0, length, back):
    """Add to the rows of G_t from i0 on what steps t+1 .. t1 of the block, or step t1+1, say about them."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    if t == last:
        return
    base = (i0 - base_row(shape, t0)) * K
    rows, off, w, wide = back.rows, back.off, back.weights, back.wide
    n, users = t - t0, (last_user(shape, t, t1) if t < t1 else t1) - t - 1
    users = users if users > 0 else 0
    tiles = length // (2 * lanes(rows)) + 1
    for y in range(S):
        for b in range(K):
            off[b] = ((n + 1) * K + b) * wide + base
            for u in range(Q):
                w[b * Q + u] = weights.replace[t + 1, (u * S + y) * K + b]
        for j in range(users):
            for r in range(Q):
                off[K + j * Q + r] = ((n + 2 + j) * K + r * S + y) * wide + base
        place = ((n * S + y) * (back.size + 1) + n + 2) * Q * Q
        copy(back.inner[place:], w[K * Q : (K + users * Q) * Q])
        for u in range(Q):
            back.pos[u] = (n * K + u * S + y) * wide + base
        fill(back.counts, 0, tiles, K + users * Q)
        combine(rows, off, w, Q, Q, back.counts, length, rows, back.pos)
    fill(back.counts, 0, tiles, Q)
    for r in range(Q):
        off[r] = ((n + 1) * Q + r) * wide + base
        for d in range(K):
            w[r * K + d] = weights.pop[t + 1, d * Q + r]
    for d in range(K):
        back.pos[d] = (n * K + d) * wide + base
    combine(back.uncovered, off, w, K, K, back.counts, length, rows, back.pos)


@kernel
def _forget_rows(shape, t0, t, i0, i1, back):
    """Zeros for the rows i0 .. i1 - 1 of G_t that the window has left behind."""
    K = shape.states * shape.symbols
    low = first_of(shape, t)
    end = low if low < i1 else i1
    for b in range(K if end > i0 else 0):
        place = ((t - t0) * K + b) * back.wide - base_row(shape, t0) * K
        fill(back.rows, place + i0 * K, place + end * K, 0)


@kernel
def _uncover_rows(shape, weights, t0, t1, t, i0, i1, back):
    """B[r; k, u, y] of step t for the k of rows i0 .. i1 - 1."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    many, n, base = (t1 - t0) * Q, t - t0, (i0 - base_row(shape, t0)) * K
    size, strip = 4 * Q * GROUPS * many, STRIP * K
    lowest, end = lowest_of(shape, t), i1 if i1 < t - 1 else t - 1
    lowest = lowest if lowest > i0 else i0
    groups = (end - i0 + 3) // 4 if end > lowest else 0
    for g in range(groups):
        last = 4 * g + 3 if 4 * g + 3 < end - 1 - i0 else end - 1 - i0
        back.lengths[g] = last * K
    for y in range(S):
        for r in range(Q):
            back.pos[r] = (n * K + r * S + y) * back.wide + base
        for u in range(Q if groups > 0 else 0):
            for c in range(4 * groups):
                back.off[c] = (c * K + u * S + y) * strip
            dots(back.near, back.off, back.lengths, groups, back.rows, back.pos, Q, back.part)
            for r in range(Q):
                scale, row = weights.uncover[t, r * S + y], (n - 1) * Q + r
                out = (n * Q + r) * back.wide + base + u * S + y
                for c in range(lowest - i0, end - i0):
                    x = back.older[y * size + 4 * ((u * GROUPS + c // 4) * many + row) + c % 4]
                    x += back.part[4 * (c // 4 * Q + r) + c % 4] if c > 0 else 0
                    back.uncovered[out + c * K] = scale * x


@kernel
def _with_previous(shape, past, t0, t, Y, many, back, res):
    """res[d * many + r] = sum over i < t-1 of P_{t-1}[i, a | d] Y[back.pos[r] + (i, a)]."""
    K = shape.states * shape.symbols
    base, low = base_row(shape, t0), first_of(shape, t)
    begin = low if low > base else base
    groups = (K + 3) // 4
    place = shape.start[t - 1] + (begin - first_of(shape, t - 1)) * K
    for j in range(many):
        back.pos[j] += (begin - base) * K
    for c in range(4 * groups):
        back.off[c] = place + (c if c < K else K - 1) * shape.stride[t - 1]
        back.lengths[c // 4] = (t - 1 - begin) * K if t - 1 > begin else 0
    dots(past.chart, back.off, back.lengths, groups, Y, back.pos, many, back.part)
    for d in range(K):
        for r in range(many):
            res[d * many + r] = back.part[4 * (d // 4 * many + r) + d % 4]


@kernel
def _finish(shape, past, adjoint, weights, t0, t1, back, grads):
    """The gradients of the block's steps, and G and B where later blocks look for them."""
    Q, K = shape.states, shape.states * shape.symbols
    base = base_row(shape, t0)
    for t in range(t0 + 1, t1 + 1):
        n, low, own = t - t0, first_of(shape, t), grads[t - 1]
        begin = low if low > base else base
        for b in range(K):
            source = (n * K + b) * back.wide + (begin - base) * K
            place = shape.start[t] + b * shape.stride[t] + (begin - low) * K
            copy(back.rows[source:], adjoint.chart[place : place + (t - begin) * K])
            for a in range(K):
                own[a * K + b] = adjoint.chart[place + (t - 1 - begin) * K + a] * weights.push[t, a * K + b]
        for b in range(K):
            back.pos[b] = (n * K + b) * back.wide
        _with_previous(shape, past, t0, t, back.rows, K, back, own[K * K : 2 * K * K])
        for r in range(Q):
            back.pos[r] = (n * Q + r) * back.wide
        _with_previous(shape, past, t0, t, back.uncovered, Q, back, own[2 * K * K :])
        for j in range(K * K):
            own[K * K + j] *= weights.replace[t, j]
        for j in range(K * Q):
            own[2 * K * K + j] *= weights.pop[t, j]
    for r in range(Q):
        place, source = r * (back.next.size // Q) + (base + 1) * K, (Q + r) * back.wide
        copy(back.uncovered[source:], back.next[place : place + (t0 - base) * K])


@kernel
def backward_block(shape, past, adjoint, weights, t0, t1, last, grad_attention, back, grads, none):
    """The gradient of steps t0 + 1 .. t1, those after t1 being done.

    Args:
        last: the last step of all.
        grad_attention: [n, K, n + 1] or empty.
        grads: [n, A], of the whole sequence, to be written.
        none: [times + 1], zeros.
    """
    K = shape.states * shape.symbols
    base = base_row(shape, t0)
    clear_uses(shape, t0, t1, last, back)
    note_uses(shape, past, weights, t0, t1, last, back)
    begin_rows(shape, adjoint, weights, t0, t1, last, grad_attention, back, none)
    begin_uncovered(shape, t0, t1, last, back)
    for i0 in range(base, t1, STRIP):
        i1 = i0 + STRIP if i0 + STRIP < t1 else t1
        from_later_blocks(shape, adjoint, t0, t1, last, i0, i1, back)
        older_products(shape, past, t0, t1, i0, i1, back)
        _begin_strip(shape, past, i0, i1, back)
        for t in range(t1, t0 if t0 > i0 else i0, -1):
            _gather_rows(shape, weights, t0, t1, last, t, i0, (i1 - i0) * K, back)
            _forget_rows(shape, t0, t, i0, i1, back)
            _uncover_rows(shape, weights, t0, t1, t, i0, i1, back)
    _finish(shape, past, adjoint, weights, t0, t1, back, grads)
