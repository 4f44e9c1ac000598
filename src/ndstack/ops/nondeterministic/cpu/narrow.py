# mypy: allow-untyped-defs, allow-untyped-calls
"""The loops of `blocks` for machines without AVX-512, which have sixteen registers for vectors.

There a loop with twelve or more sums of vectors in the making would spend its time on moving them to memory
and back. These have six at a time.
"""

from __future__ import annotations

from ndstack.ops.runtime.simd import (
    fma,
    kernel,
    kernel_loop,
    lanes,
    load,
    load_half,
    plus,
    spread,
    store,
    store_sums,
    zeros,
    zeros_half,
)


@kernel_loop
def combine6(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    """As `blocks` says, for six results."""
    width = lanes(X)
    for half in range(2 * tiles):
        j = width * half
        p0, p1, p2 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j
        p3, p4, p5 = pos[r + 3] + j, pos[r + 4] + j, pos[r + 5] + j
        a0, a1, a2 = load(out, p0), load(out, p1), load(out, p2)
        a3, a4, a5 = load(out, p3), load(out, p4), load(out, p5)
        for c in range(counts[half // 2]):
            x, i = load(X, off[c] + j), first + c * wide
            a0 = fma(spread(W, i), x, a0)
            a1 = fma(spread(W, i + apart), x, a1)
            a2 = fma(spread(W, i + 2 * apart), x, a2)
            a3 = fma(spread(W, i + 3 * apart), x, a3)
            a4 = fma(spread(W, i + 4 * apart), x, a4)
            a5 = fma(spread(W, i + 5 * apart), x, a5)
        store(out, p0, a0)
        store(out, p1, a1)
        store(out, p2, a2)
        store(out, p3, a3)
        store(out, p4, a4)
        store(out, p5, a5)


@kernel_loop
def combine4(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    """As `blocks` says, for four results."""
    width = lanes(X)
    for half in range(2 * tiles):
        j = width * half
        p0, p1, p2, p3 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j, pos[r + 3] + j
        a0, a1, a2, a3 = load(out, p0), load(out, p1), load(out, p2), load(out, p3)
        for c in range(counts[half // 2]):
            x, i = load(X, off[c] + j), first + c * wide
            a0 = fma(spread(W, i), x, a0)
            a1 = fma(spread(W, i + apart), x, a1)
            a2 = fma(spread(W, i + 2 * apart), x, a2)
            a3 = fma(spread(W, i + 3 * apart), x, a3)
        store(out, p0, a0)
        store(out, p1, a1)
        store(out, p2, a2)
        store(out, p3, a3)


@kernel_loop
def combine3(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos):
    """As `blocks` says, for three results; there are no pairs of tiles here."""
    width = lanes(X)
    for half in range(2 * tiles):
        j, count = width * half, counts[half // 2]
        p0, p1, p2 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j
        a0, a1, a2 = load(out, p0), load(out, p1), load(out, p2)
        b0 = b1 = b2 = zeros(X)
        for c in range(0, count - 1, 2):
            x, i = load(X, off[c] + j), first + c * wide
            a0 = fma(spread(W, i), x, a0)
            a1 = fma(spread(W, i + apart), x, a1)
            a2 = fma(spread(W, i + 2 * apart), x, a2)
            x, i = load(X, off[c + 1] + j), i + wide
            b0 = fma(spread(W, i), x, b0)
            b1 = fma(spread(W, i + apart), x, b1)
            b2 = fma(spread(W, i + 2 * apart), x, b2)
        if count % 2 == 1:
            x, i = load(X, off[count - 1] + j), first + (count - 1) * wide
            a0 = fma(spread(W, i), x, a0)
            a1 = fma(spread(W, i + apart), x, a1)
            a2 = fma(spread(W, i + 2 * apart), x, a2)
        store(out, p0, plus(a0, b0))
        store(out, p1, plus(a1, b1))
        store(out, p2, plus(a2, b2))


@kernel_loop
def combine2(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos):
    """As `blocks` says, for two results; likewise."""
    width = lanes(X)
    for half in range(2 * tiles):
        j, count = width * half, counts[half // 2]
        p0, p1 = pos[r] + j, pos[r + 1] + j
        a0, a1 = load(out, p0), load(out, p1)
        b0 = b1 = zeros(X)
        for c in range(0, count - 1, 2):
            x, i = load(X, off[c] + j), first + c * wide
            a0, a1 = fma(spread(W, i), x, a0), fma(spread(W, i + apart), x, a1)
            x, i = load(X, off[c + 1] + j), i + wide
            b0, b1 = fma(spread(W, i), x, b0), fma(spread(W, i + apart), x, b1)
        if count % 2 == 1:
            x, i = load(X, off[count - 1] + j), first + (count - 1) * wide
            a0, a1 = fma(spread(W, i), x, a0), fma(spread(W, i + apart), x, a1)
        store(out, p0, plus(a0, b0))
        store(out, p1, plus(a1, b1))


@kernel_loop
def dots3(X, off, lengths, groups, Y, pos, r, many, res):
    """As `blocks` says, for three rows of Y."""
    p0, p1, p2 = pos[r], pos[r + 1], pos[r + 2]
    for g in range(groups):
        o0, o1, o2, o3 = off[4 * g], off[4 * g + 1], off[4 * g + 2], off[4 * g + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = zeros_half(X)
        for j in range(0, lengths[g], lanes(X) // 2):
            y0, y1, y2, x = (
                load_half(Y, p0 + j),
                load_half(Y, p1 + j),
                load_half(Y, p2 + j),
                load_half(X, o0 + j),
            )
            a0, b0, c0 = fma(x, y0, a0), fma(x, y1, b0), fma(x, y2, c0)
            x = load_half(X, o1 + j)
            a1, b1, c1 = fma(x, y0, a1), fma(x, y1, b1), fma(x, y2, c1)
            x = load_half(X, o2 + j)
            a2, b2, c2 = fma(x, y0, a2), fma(x, y1, b2), fma(x, y2, c2)
            x = load_half(X, o3 + j)
            a3, b3, c3 = fma(x, y0, a3), fma(x, y1, b3), fma(x, y2, c3)
        i = 4 * (g * many + r)
        store_sums(res, i, a0, a1, a2, a3)
        store_sums(res, i + 4, b0, b1, b2, b3)
        store_sums(res, i + 8, c0, c1, c2, c3)


@kernel_loop
def dots2(X, off, lengths, groups, Y, pos, r, many, res):
    """As `blocks` says, for two rows of Y."""
    p0, p1 = pos[r], pos[r + 1]
    for g in range(groups):
        o0, o1, o2, o3 = off[4 * g], off[4 * g + 1], off[4 * g + 2], off[4 * g + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zeros_half(X)
        for j in range(0, lengths[g], lanes(X) // 2):
            y0, y1, x = load_half(Y, p0 + j), load_half(Y, p1 + j), load_half(X, o0 + j)
            a0, b0 = fma(x, y0, a0), fma(x, y1, b0)
            x = load_half(X, o1 + j)
            a1, b1 = fma(x, y0, a1), fma(x, y1, b1)
            x = load_half(X, o2 + j)
            a2, b2 = fma(x, y0, a2), fma(x, y1, b2)
            x = load_half(X, o3 + j)
            a3, b3 = fma(x, y0, a3), fma(x, y1, b3)
        i = 4 * (g * many + r)
        store_sums(res, i, a0, a1, a2, a3)
        store_sums(res, i + 4, b0, b1, b2, b3)


@kernel
def dots_of_pairs(X, one, two, lengths, groups, Y, pos, res):
    """As `blocks` says."""
    first = groups - groups  # no literal, for which numba would compile `dots2` again
    dots2(X, one, lengths, groups, Y, pos, first, first + 4, res)
    dots2(X, two, lengths, groups, Y, pos, first, first + 4, res[8:])
