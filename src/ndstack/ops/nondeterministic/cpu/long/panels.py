# mypy: allow-untyped-defs, allow-untyped-calls
"""Products of matrices whose rows are columns of a chart, for scans by blocks of time steps.

`product` adds up columns with weights as `blocks.combine` does, but for many results at once: it copies a
panel of columns, which may lie anywhere in memory, into the cache, and uses each number for all results.
"""

from __future__ import annotations

from ndstack.ops.runtime.simd import fma, kernel, kernel_loop, lanes, load, spread, store, zeros

ROWS = 6
"""How many results are summed up at once: a vector of each stays in a register, or in two."""
DEPTH = 128
"""How many columns a panel has."""


@kernel
def groups_of(many):
    """How many groups of `ROWS` results there are."""
    return (many + ROWS - 1) // ROWS


@kernel
def weight_place(wide, c, r):
    """Where the weights of `product` have that of column c for result r; `wide` columns have room."""
    return (r // ROWS * wide + c) * ROWS + r % ROWS


@kernel
def product(X, off, skip, first, last, W, wide, many, length, out, pos, panel):
    """out[pos[r] + j] += sum_{first <= c < last} W[weight_place(wide, c, r)] X[off[c] + j].

    For j < length, rounded up to whole vectors, and r < many, rounded up to whole groups: for results that
    nobody wants, `pos` has to name some room.

    Args:
        skip: the first skip[c] numbers of a column count as zeros.
        panel: room for DEPTH * length numbers.
    """
    for begin in range(first, last, DEPTH):
        count = DEPTH if begin + DEPTH < last else last - begin
        _pack(X, off, skip, begin, count, length, panel)
        _multiply(panel, count, W, begin * ROWS, wide * ROWS, groups_of(many), length, out, pos)


@kernel_loop
def _pack(X, off, skip, begin, count, length, panel):
    """panel: for every vector of numbers in a column, the vectors of all columns one after the other."""
    width = lanes(X)
    for c in range(count):
        place, none = off[begin + c], skip[begin + c]
        for j in range(0, length, width):
            at = j * count + c * width
            if j >= none:
                store(panel, at, load(X, place + j))
            else:
                store(panel, at, zeros(X))
                for i in range(none - j, width):
                    panel[at + i] = X[place + j + i]


@kernel_loop
def _multiply(X, count, W, first, stride, groups, length, out, pos):
    width = lanes(X)
    for j in range(0, length, width):
        for g in range(groups):
            p = ROWS * g
            p0, p1, p2 = pos[p] + j, pos[p + 1] + j, pos[p + 2] + j
            p3, p4, p5 = pos[p + 3] + j, pos[p + 4] + j, pos[p + 5] + j
            a0, a1, a2 = load(out, p0), load(out, p1), load(out, p2)
            a3, a4, a5 = load(out, p3), load(out, p4), load(out, p5)
            i, x = first + g * stride, j * count
            for _ in range(count):
                v = load(X, x)
                a0, a1 = fma(spread(W, i), v, a0), fma(spread(W, i + 1), v, a1)
                a2, a3 = fma(spread(W, i + 2), v, a2), fma(spread(W, i + 3), v, a3)
                a4, a5 = fma(spread(W, i + 4), v, a4), fma(spread(W, i + 5), v, a5)
                x += width
                i += ROWS
            store(out, p0, a0)
            store(out, p1, a1)
            store(out, p2, a2)
            store(out, p3, a3)
            store(out, p4, a4)
            store(out, p5, a5)
