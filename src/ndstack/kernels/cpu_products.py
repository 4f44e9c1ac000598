# mypy: allow-untyped-defs, allow-untyped-calls
"""Products of matrices whose rows are columns of a chart, for scans by blocks of time steps.

They compute what `cpu_blocks.combine` and `cpu_blocks.dots` compute, for many rows at once, in an order
that reads the chart from memory once instead of once for every few rows.
"""

from __future__ import annotations

from ndstack.kernels.cpu_blocks import combine, dots
from ndstack.kernels.cpu_simd import fma, kernel, lanes, load, spread, store

ROWS = 6
"""How many rows of a product are computed at once; two vectors of each fill the registers of AVX2."""
COLUMNS = 64
"""How many columns are added up before their sums are written to memory."""
CHUNK = 288
"""How many numbers of a column enter a product of columns at a time."""


@kernel
def product(X, off, first, last, W, wide, many, counts, length, out, pos):
    """out[pos[r] + j] += sum_{first <= c < last} w[c, r] X[off[c] + j], for r < many and j < length.

    Args:
        off: where the columns begin.
        W: the weights, w[c, r] at (r // ROWS * wide + c) * ROWS + r % ROWS.
        wide: how many columns W has room for.
        counts: room for one number per step of two vectors.
        length: rounded up to whole steps of two vectors.
    """
    step = 2 * lanes(X)
    tiles = (length + step - 1) // step
    full = many // ROWS
    left = many - full * ROWS
    for begin in range(first, last, COLUMNS):
        end = min(begin + COLUMNS, last)
        for group in range(full):
            _combine6(X, off, begin, end, W, group * wide * ROWS, tiles, out, pos, group * ROWS)
        if left > 0:
            counts[:tiles] = end - begin
            own = W[(full * wide + begin) * ROWS :]
            combine(X, off[begin:], own, ROWS, left, counts, length, out, pos[full * ROWS :])


@kernel
def _combine6(X, off, begin, end, W, base, tiles, out, pos, p):
    width = lanes(X)
    for tile in range(tiles):
        j = 2 * width * tile
        p0, p1, p2 = pos[p] + j, pos[p + 1] + j, pos[p + 2] + j
        p3, p4, p5 = pos[p + 3] + j, pos[p + 4] + j, pos[p + 5] + j
        a0, b0 = load(out, p0), load(out, p0 + width)
        a1, b1 = load(out, p1), load(out, p1 + width)
        a2, b2 = load(out, p2), load(out, p2 + width)
        a3, b3 = load(out, p3), load(out, p3 + width)
        a4, b4 = load(out, p4), load(out, p4 + width)
        a5, b5 = load(out, p5), load(out, p5 + width)
        for c in range(begin, end):
            x, y, i = load(X, off[c] + j), load(X, off[c] + j + width), base + c * ROWS
            w = spread(W, i)
            a0, b0 = fma(w, x, a0), fma(w, y, b0)
            w = spread(W, i + 1)
            a1, b1 = fma(w, x, a1), fma(w, y, b1)
            w = spread(W, i + 2)
            a2, b2 = fma(w, x, a2), fma(w, y, b2)
            w = spread(W, i + 3)
            a3, b3 = fma(w, x, a3), fma(w, y, b3)
            w = spread(W, i + 4)
            a4, b4 = fma(w, x, a4), fma(w, y, b4)
            w = spread(W, i + 5)
            a5, b5 = fma(w, x, a5), fma(w, y, b5)
        store(out, p0, a0)
        store(out, p0 + width, b0)
        store(out, p1, a1)
        store(out, p1 + width, b1)
        store(out, p2, a2)
        store(out, p2 + width, b2)
        store(out, p3, a3)
        store(out, p3 + width, b3)
        store(out, p4, a4)
        store(out, p4 + width, b4)
        store(out, p5, a5)
        store(out, p5 + width, b5)


@kernel
def add_dots(X, off, groups, length, Y, pos, many, moved, lengths, part, res):
    """res[4 (g * many + r) + c] += sum_{j < length} X[off[4 g + c] + j] Y[pos[r] + j].

    Args:
        length: a multiple of a vector's size.
        moved: room for the places of one chunk, [4 * groups + many].
        lengths: room for the lengths of one chunk, [groups].
        part: room for the products of one chunk, like `res`.
    """
    size = 4 * groups * many
    here, there = moved[: 4 * groups], moved[4 * groups :]
    for begin in range(0, length, CHUNK):
        lengths[:groups] = min(CHUNK, length - begin)
        for c in range(4 * groups):
            here[c] = off[c] + begin
        for r in range(many):
            there[r] = pos[r] + begin
        dots(X, here, lengths, groups, Y, there, many, part)
        for j in range(size):
            res[j] += part[j]
