# mypy: allow-untyped-defs, allow-untyped-calls
"""The operations that hold all heavy work of the compiled kernels, on columns of a chart.

`combine` adds up columns with weights, `dots` multiplies columns with each other, and `distribute`
adds few columns to many. Forward and backward passes are arranged so that their cubic parts are
calls of these. They come in variants for one to six columns at once, which differ in what they keep in
registers. A number that comes from the second-level cache has to be used about four times, lest its way take
longer than the multiply-adds. `narrow` has variants for machines with fewer and smaller registers.
"""

from __future__ import annotations

from ndstack.ops.nondeterministic.cpu import narrow
from ndstack.ops.runtime.simd import (
    fma,
    has_wide_registers,
    kernel,
    kernel_loop,
    lanes,
    load,
    load2,
    load4,
    plus,
    spread,
    spread2,
    spread4,
    store,
    store_eight_sums,
    store_sums,
    zeros,
)


@kernel
def by_three(many):
    """How many of so many rows are taken three at a time; 0, 1, 2 or 4 are left, since 4 is two by two."""
    left = many % 3
    return many - (4 if left == 1 and many > 1 else left)


@kernel
def combine(X, off, W, wide, many, counts, length, out, pos):
    """out[pos[r] + j] += sum_{c < counts[j // step]} W[c * wide + r] X[off[c] + j].

    For r < many and j < length, rounded up to whole steps of two vectors.
    """
    zero = wide - wide  # no literal; numba would compile the loops again for each
    combine_apart(X, off, W, zero, zero + wide, zero + 1, zero + many, counts, length, out, pos)


@kernel
def combine_apart(X, off, W, first, wide, apart, many, counts, length, out, pos):
    """As `combine`, with the weights W[first + c * wide + r * apart]."""
    tiles = (length + 2 * lanes(X) - 1) // (2 * lanes(X))
    r = none = many - many  # no literal, as above
    while many - r >= 6:
        combine6(X, off, W, first + r * apart, wide, apart, r, counts, tiles, out, pos)
        r += 6
    if many - r >= 4:
        combine4(X, off, W, first + r * apart, wide, apart, r, counts, tiles, out, pos)
        r += 4
    if many - r == 3:
        combine3(X, off, W, first + r * apart, wide, apart, r, counts, none, tiles, out, pos)
    elif many - r == 2:
        combine2(X, off, W, first + r * apart, wide, apart, r, counts, none, tiles, out, pos)
    elif many - r == 1:
        _combine1(X, off, W, first + r * apart, wide, r, counts, tiles, out, pos)


@kernel
def shared(counts, tile, tiles):
    """How many columns a tile and the other one of its pair, 2 i and 2 i + 1, both have."""
    pair = tile + 1 - 2 * (tile % 2)
    if pair >= tiles:
        return 0
    return counts[tile] if counts[tile] < counts[pair] else counts[pair]


@kernel
def _wide_combine6(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    _pairs6(X, off, W, first, wide, apart, r, counts, tiles, out, pos)
    paired = tiles - tiles + 1
    _wide_combine3(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos)
    _wide_combine3(X, off, W, first + 3 * apart, wide, apart, r + 3, counts, paired, tiles, out, pos)


@kernel
def _wide_combine4(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    _pairs4(X, off, W, first, wide, apart, r, counts, tiles, out, pos)
    paired = tiles - tiles + 1
    _wide_combine2(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos)
    _wide_combine2(X, off, W, first + 2 * apart, wide, apart, r + 2, counts, paired, tiles, out, pos)


@kernel_loop
def _pairs6(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    """Six results, as far as both tiles of a pair have the same columns."""
    for tile in range(0, tiles - 1, 2):
        j = 2 * lanes(X) * tile
        p0, p1, p2 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j
        p3, p4, p5 = pos[r + 3] + j, pos[r + 4] + j, pos[r + 5] + j
        a0, a1, a2 = load4(out, p0), load4(out, p1), load4(out, p2)
        a3, a4, a5 = load4(out, p3), load4(out, p4), load4(out, p5)
        for c in range(shared(counts, tile, tiles)):
            x, i = load4(X, off[c] + j), first + c * wide
            a0, a1 = fma(spread4(W, i), x, a0), fma(spread4(W, i + apart), x, a1)
            a2, a3 = fma(spread4(W, i + 2 * apart), x, a2), fma(spread4(W, i + 3 * apart), x, a3)
            a4, a5 = fma(spread4(W, i + 4 * apart), x, a4), fma(spread4(W, i + 5 * apart), x, a5)
        store(out, p0, a0)
        store(out, p1, a1)
        store(out, p2, a2)
        store(out, p3, a3)
        store(out, p4, a4)
        store(out, p5, a5)


@kernel_loop
def _pairs4(X, off, W, first, wide, apart, r, counts, tiles, out, pos):
    """Four results, likewise."""
    for tile in range(0, tiles - 1, 2):
        j = 2 * lanes(X) * tile
        p0, p1, p2, p3 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j, pos[r + 3] + j
        a0, a1, a2, a3 = load4(out, p0), load4(out, p1), load4(out, p2), load4(out, p3)
        for c in range(shared(counts, tile, tiles)):
            x, i = load4(X, off[c] + j), first + c * wide
            a0, a1 = fma(spread4(W, i), x, a0), fma(spread4(W, i + apart), x, a1)
            a2, a3 = fma(spread4(W, i + 2 * apart), x, a2), fma(spread4(W, i + 3 * apart), x, a3)
        store(out, p0, a0)
        store(out, p1, a1)
        store(out, p2, a2)
        store(out, p3, a3)


@kernel_loop
def _wide_combine3(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos):
    """Three results; if `paired`, without the columns that both tiles of a pair have."""
    for tile in range(tiles):
        done = shared(counts, tile, tiles) if paired else 0
        if done == counts[tile]:
            continue
        j = 2 * lanes(X) * tile
        p0, p1, p2 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j
        a0, a1, a2 = load2(out, p0), load2(out, p1), load2(out, p2)
        for c in range(done, counts[tile]):
            x, i = load2(X, off[c] + j), first + c * wide
            a0, a1 = fma(spread2(W, i), x, a0), fma(spread2(W, i + apart), x, a1)
            a2 = fma(spread2(W, i + 2 * apart), x, a2)
        store(out, p0, a0)
        store(out, p1, a1)
        store(out, p2, a2)


@kernel_loop
def _wide_combine2(X, off, W, first, wide, apart, r, counts, paired, tiles, out, pos):
    """Two results, likewise."""
    for tile in range(tiles):
        done = shared(counts, tile, tiles) if paired else 0
        if done == counts[tile]:
            continue
        j = 2 * lanes(X) * tile
        p0, p1 = pos[r] + j, pos[r + 1] + j
        a0, a1 = load2(out, p0), load2(out, p1)
        for c in range(done, counts[tile]):
            x, i = load2(X, off[c] + j), first + c * wide
            a0, a1 = fma(spread2(W, i), x, a0), fma(spread2(W, i + apart), x, a1)
        store(out, p0, a0)
        store(out, p1, a1)


@kernel_loop
def _combine1(X, off, W, first, wide, r, counts, tiles, out, pos):
    width = lanes(X)
    for tile in range(tiles):
        j, count = 2 * width * tile, counts[tile]
        p0 = pos[r] + j
        a0, b0 = load(out, p0), load(out, p0 + width)
        e0 = f0 = zeros(X)
        for c in range(0, count - 1, 2):
            x, y, w0 = load(X, off[c] + j), load(X, off[c] + j + width), spread(W, first + c * wide)
            a0, b0 = fma(w0, x, a0), fma(w0, y, b0)
            x, y = load(X, off[c + 1] + j), load(X, off[c + 1] + j + width)
            w0 = spread(W, first + (c + 1) * wide)
            e0, f0 = fma(w0, x, e0), fma(w0, y, f0)
        if count % 2 == 1:
            c = count - 1
            x, y, w0 = load(X, off[c] + j), load(X, off[c] + j + width), spread(W, first + c * wide)
            a0, b0 = fma(w0, x, a0), fma(w0, y, b0)
        store(out, p0, plus(a0, e0))
        store(out, p0 + width, plus(b0, f0))


@kernel
def dots(X, off, lengths, groups, Y, pos, many, res):
    """res[4 (g * many + r) + c] = sum_{j < lengths[g]} X[off[4 g + c] + j] Y[pos[r] + j].

    For g < groups, c < 4 and r < many. The sums run over whole vectors, so X has to be zero up to a
    whole vector after the length.
    """
    three = by_three(many)
    for r in range(0, three, 3):
        dots3(X, off, lengths, groups, Y, pos, r, many, res)
    for r in range(three, many - 1, 2):
        dots2(X, off, lengths, groups, Y, pos, r, many, res)
    if many - three == 1:
        _dots1(X, off, lengths, groups, Y, pos, three, many, res)


@kernel_loop
def _wide_dots3(X, off, lengths, groups, Y, pos, r, many, res):
    p0, p1, p2 = pos[r], pos[r + 1], pos[r + 2]
    for g in range(groups):
        o0, o1, o2, o3 = off[4 * g], off[4 * g + 1], off[4 * g + 2], off[4 * g + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = zeros(X)
        for j in range(0, lengths[g], lanes(X)):
            y0, y1, y2 = load(Y, p0 + j), load(Y, p1 + j), load(Y, p2 + j)
            x = load(X, o0 + j)
            a0, b0, c0 = fma(x, y0, a0), fma(x, y1, b0), fma(x, y2, c0)
            x = load(X, o1 + j)
            a1, b1, c1 = fma(x, y0, a1), fma(x, y1, b1), fma(x, y2, c1)
            x = load(X, o2 + j)
            a2, b2, c2 = fma(x, y0, a2), fma(x, y1, b2), fma(x, y2, c2)
            x = load(X, o3 + j)
            a3, b3, c3 = fma(x, y0, a3), fma(x, y1, b3), fma(x, y2, c3)
        i = 4 * (g * many + r)
        store_sums(res, i, a0, a1, a2, a3)
        store_sums(res, i + 4, b0, b1, b2, b3)
        store_sums(res, i + 8, c0, c1, c2, c3)


@kernel_loop
def _wide_dots2(X, off, lengths, groups, Y, pos, r, many, res):
    p0, p1 = pos[r], pos[r + 1]
    for g in range(groups):
        o0, o1, o2, o3 = off[4 * g], off[4 * g + 1], off[4 * g + 2], off[4 * g + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zeros(X)
        for j in range(0, lengths[g], lanes(X)):
            y0, y1 = load(Y, p0 + j), load(Y, p1 + j)
            x = load(X, o0 + j)
            a0, b0 = fma(x, y0, a0), fma(x, y1, b0)
            x = load(X, o1 + j)
            a1, b1 = fma(x, y0, a1), fma(x, y1, b1)
            x = load(X, o2 + j)
            a2, b2 = fma(x, y0, a2), fma(x, y1, b2)
            x = load(X, o3 + j)
            a3, b3 = fma(x, y0, a3), fma(x, y1, b3)
        i = 4 * (g * many + r)
        store_sums(res, i, a0, a1, a2, a3)
        store_sums(res, i + 4, b0, b1, b2, b3)


@kernel_loop
def _wide_dots_of_pairs(X, one, two, lengths, groups, Y, pos, res):
    """`dots` of two rows with the columns of `one`, in res[16 g + 4 r + c], and of `two`, 8 places later.

    Sixteen sums at a time need fewer loads, and fewer operations to add up the lanes of vectors.
    """
    p0, p1 = pos[0], pos[1]
    for g in range(groups):
        o0, o1, o2, o3 = one[4 * g], one[4 * g + 1], one[4 * g + 2], one[4 * g + 3]
        o4, o5, o6, o7 = two[4 * g], two[4 * g + 1], two[4 * g + 2], two[4 * g + 3]
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = zeros(X)
        for j in range(0, lengths[g], lanes(X)):
            y0, y1 = load(Y, p0 + j), load(Y, p1 + j)
            x = load(X, o0 + j)
            a0, b0 = fma(x, y0, a0), fma(x, y1, b0)
            x = load(X, o1 + j)
            a1, b1 = fma(x, y0, a1), fma(x, y1, b1)
            x = load(X, o2 + j)
            a2, b2 = fma(x, y0, a2), fma(x, y1, b2)
            x = load(X, o3 + j)
            a3, b3 = fma(x, y0, a3), fma(x, y1, b3)
            x = load(X, o4 + j)
            a4, b4 = fma(x, y0, a4), fma(x, y1, b4)
            x = load(X, o5 + j)
            a5, b5 = fma(x, y0, a5), fma(x, y1, b5)
            x = load(X, o6 + j)
            a6, b6 = fma(x, y0, a6), fma(x, y1, b6)
            x = load(X, o7 + j)
            a7, b7 = fma(x, y0, a7), fma(x, y1, b7)
        store_eight_sums(res, 16 * g, a0, a1, a2, a3, b0, b1, b2, b3)
        store_eight_sums(res, 16 * g + 8, a4, a5, a6, a7, b4, b5, b6, b7)


@kernel_loop
def _dots1(X, off, lengths, groups, Y, pos, r, many, res):
    p0 = pos[r]
    for g in range(groups):
        o0, o1, o2, o3 = off[4 * g], off[4 * g + 1], off[4 * g + 2], off[4 * g + 3]
        a0 = a1 = a2 = a3 = zeros(X)
        for j in range(0, lengths[g], lanes(X)):
            y0 = load(Y, p0 + j)
            a0, a1 = fma(load(X, o0 + j), y0, a0), fma(load(X, o1 + j), y0, a1)
            a2, a3 = fma(load(X, o2 + j), y0, a2), fma(load(X, o3 + j), y0, a3)
        store_sums(res, 4 * (g * many + r), a0, a1, a2, a3)


@kernel
def distribute(X, pos, W, many, out, off, lengths, count):
    """out[off[c] + j] += sum_{r < many} W[c * many + r] X[pos[r] + j].

    For c < count and j < lengths[c], rounded up to whole vectors.
    """
    three = by_three(many)
    for r in range(0, three, 3):
        _distribute3(X, pos, W, r, many, out, off, lengths, count)
    for r in range(three, many - 1, 2):
        _distribute2(X, pos, W, r, many, out, off, lengths, count)
    if many - three == 1:
        _distribute1(X, pos, W, three, many, out, off, lengths, count)


@kernel_loop
def _distribute3(X, pos, W, r, many, out, off, lengths, count):
    p0, p1, p2 = pos[r], pos[r + 1], pos[r + 2]
    for c in range(count):
        o, i = off[c], c * many + r
        w0, w1, w2 = spread(W, i), spread(W, i + 1), spread(W, i + 2)
        for j in range(0, lengths[c], lanes(X)):
            a = fma(w1, load(X, p1 + j), fma(w0, load(X, p0 + j), load(out, o + j)))
            store(out, o + j, fma(w2, load(X, p2 + j), a))


@kernel_loop
def _distribute2(X, pos, W, r, many, out, off, lengths, count):
    p0, p1 = pos[r], pos[r + 1]
    for c in range(count):
        o, i = off[c], c * many + r
        w0, w1 = spread(W, i), spread(W, i + 1)
        for j in range(0, lengths[c], lanes(X)):
            a = fma(w0, load(X, p0 + j), load(out, o + j))
            store(out, o + j, fma(w1, load(X, p1 + j), a))


@kernel_loop
def _distribute1(X, pos, W, r, many, out, off, lengths, count):
    p0 = pos[r]
    for c in range(count):
        o, w0 = off[c], spread(W, c * many + r)
        for j in range(0, lengths[c], lanes(X)):
            store(out, o + j, fma(w0, load(X, p0 + j), load(out, o + j)))


NARROW = not has_wide_registers()
combine6, combine4 = (narrow.combine6, narrow.combine4) if NARROW else (_wide_combine6, _wide_combine4)
combine3, combine2 = (narrow.combine3, narrow.combine2) if NARROW else (_wide_combine3, _wide_combine2)
dots3, dots2 = (narrow.dots3, narrow.dots2) if NARROW else (_wide_dots3, _wide_dots2)
dots_of_pairs = narrow.dots_of_pairs if NARROW else _wide_dots_of_pairs
