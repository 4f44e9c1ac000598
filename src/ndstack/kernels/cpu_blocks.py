"""The two operations that hold all heavy work of the compiled kernels, on columns of a chart.

`combine` adds up columns with weights, `dots` multiplies columns with each other. Forward and
backward passes are arranged so that their cubic parts are calls of these two.
"""

from __future__ import annotations

from numba import njit

from ndstack.kernels.cpu_simd import flags, fma, lanes, load, spread, store, total, zeros

TILE = 32
"""Columns are padded with zeros to multiples of this; two vectors at most."""


@njit(**flags)
def combine(X, off, W, wide, first, many, counts, length, out, pos):  # type: ignore[no-untyped-def]
    """out[pos[r] + j] += sum_{c < counts[j // step]} W[c * wide + r] X[off[c] + j].

    For r in first .. first + many - 1 and j < length rounded up to whole tiles of two vectors.
    """
    step = 2 * lanes(X)
    r = first
    left = many
    while left > 0:
        part = 2 if left == 4 else min(left, 3)
        for tile in range((length + step - 1) // step):
            if part == 3:
                _combine3(X, off, W, wide, r, counts[tile], tile * step, out, pos)
            elif part == 2:
                _combine2(X, off, W, wide, r, counts[tile], tile * step, out, pos)
            else:
                _combine1(X, off, W, wide, r, counts[tile], tile * step, out, pos)
        r += part
        left -= part


@njit(**flags)
def _combine3(X, off, W, wide, r, count, j, out, pos):  # type: ignore[no-untyped-def]
    width = lanes(X)
    p0, p1, p2 = pos[r] + j, pos[r + 1] + j, pos[r + 2] + j
    a0, b0 = load(out, p0), load(out, p0 + width)
    a1, b1 = load(out, p1), load(out, p1 + width)
    a2, b2 = load(out, p2), load(out, p2 + width)
    for c in range(count):
        x, y = load(X, off[c] + j), load(X, off[c] + j + width)
        w0, w1, w2 = spread(W, c * wide + r), spread(W, c * wide + r + 1), spread(W, c * wide + r + 2)
        a0, b0 = fma(w0, x, a0), fma(w0, y, b0)
        a1, b1 = fma(w1, x, a1), fma(w1, y, b1)
        a2, b2 = fma(w2, x, a2), fma(w2, y, b2)
    store(out, p0, a0)
    store(out, p0 + width, b0)
    store(out, p1, a1)
    store(out, p1 + width, b1)
    store(out, p2, a2)
    store(out, p2 + width, b2)


@njit(**flags)
def _combine2(X, off, W, wide, r, count, j, out, pos):  # type: ignore[no-untyped-def]
    width = lanes(X)
    p0, p1 = pos[r] + j, pos[r + 1] + j
    a0, b0 = load(out, p0), load(out, p0 + width)
    a1, b1 = load(out, p1), load(out, p1 + width)
    for c in range(count):
        x, y = load(X, off[c] + j), load(X, off[c] + j + width)
        w0, w1 = spread(W, c * wide + r), spread(W, c * wide + r + 1)
        a0, b0 = fma(w0, x, a0), fma(w0, y, b0)
        a1, b1 = fma(w1, x, a1), fma(w1, y, b1)
    store(out, p0, a0)
    store(out, p0 + width, b0)
    store(out, p1, a1)
    store(out, p1 + width, b1)


@njit(**flags)
def _combine1(X, off, W, wide, r, count, j, out, pos):  # type: ignore[no-untyped-def]
    width = lanes(X)
    p0 = pos[r] + j
    a0, b0 = load(out, p0), load(out, p0 + width)
    for c in range(count):
        w0 = spread(W, c * wide + r)
        a0, b0 = fma(w0, load(X, off[c] + j), a0), fma(w0, load(X, off[c] + j + width), b0)
    store(out, p0, a0)
    store(out, p0 + width, b0)


@njit(**flags)
def dots(X, off, Y, pos, many, length, res):  # type: ignore[no-untyped-def]
    """res[4 * r + c] = sum_{j < length} X[off[c] + j] Y[pos[r] + j] for c < 4 and r < many.

    The sum runs over whole vectors, so X has to be zero up to a whole vector after `length`.
    """
    r = 0
    while r < many:
        part = 2 if many - r == 4 else min(many - r, 3)
        if part == 3:
            _dots3(X, off, Y, pos, r, length, res)
        elif part == 2:
            _dots2(X, off, Y, pos, r, length, res)
        else:
            _dots1(X, off, Y, pos, r, length, res)
        r += part


@njit(**flags)
def _dots3(X, off, Y, pos, r, length, res):  # type: ignore[no-untyped-def]
    o0, o1, o2, o3 = off[0], off[1], off[2], off[3]
    p0, p1, p2 = pos[r], pos[r + 1], pos[r + 2]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = zeros(X)
    for j in range(0, length, lanes(X)):
        y0, y1, y2 = load(Y, p0 + j), load(Y, p1 + j), load(Y, p2 + j)
        x = load(X, o0 + j)
        a0, b0, c0 = fma(x, y0, a0), fma(x, y1, b0), fma(x, y2, c0)
        x = load(X, o1 + j)
        a1, b1, c1 = fma(x, y0, a1), fma(x, y1, b1), fma(x, y2, c1)
        x = load(X, o2 + j)
        a2, b2, c2 = fma(x, y0, a2), fma(x, y1, b2), fma(x, y2, c2)
        x = load(X, o3 + j)
        a3, b3, c3 = fma(x, y0, a3), fma(x, y1, b3), fma(x, y2, c3)
    i = 4 * r
    res[i], res[i + 1], res[i + 2], res[i + 3] = total(a0), total(a1), total(a2), total(a3)
    res[i + 4], res[i + 5], res[i + 6], res[i + 7] = total(b0), total(b1), total(b2), total(b3)
    res[i + 8], res[i + 9], res[i + 10], res[i + 11] = total(c0), total(c1), total(c2), total(c3)


@njit(**flags)
def _dots2(X, off, Y, pos, r, length, res):  # type: ignore[no-untyped-def]
    o0, o1, o2, o3 = off[0], off[1], off[2], off[3]
    p0, p1 = pos[r], pos[r + 1]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zeros(X)
    for j in range(0, length, lanes(X)):
        y0, y1 = load(Y, p0 + j), load(Y, p1 + j)
        x = load(X, o0 + j)
        a0, b0 = fma(x, y0, a0), fma(x, y1, b0)
        x = load(X, o1 + j)
        a1, b1 = fma(x, y0, a1), fma(x, y1, b1)
        x = load(X, o2 + j)
        a2, b2 = fma(x, y0, a2), fma(x, y1, b2)
        x = load(X, o3 + j)
        a3, b3 = fma(x, y0, a3), fma(x, y1, b3)
    i = 4 * r
    res[i], res[i + 1], res[i + 2], res[i + 3] = total(a0), total(a1), total(a2), total(a3)
    res[i + 4], res[i + 5], res[i + 6], res[i + 7] = total(b0), total(b1), total(b2), total(b3)


@njit(**flags)
def _dots1(X, off, Y, pos, r, length, res):  # type: ignore[no-untyped-def]
    o0, o1, o2, o3 = off[0], off[1], off[2], off[3]
    p0 = pos[r]
    a0 = a1 = a2 = a3 = zeros(X)
    for j in range(0, length, lanes(X)):
        y0 = load(Y, p0 + j)
        a0, a1 = fma(load(X, o0 + j), y0, a0), fma(load(X, o1 + j), y0, a1)
        a2, a3 = fma(load(X, o2 + j), y0, a2), fma(load(X, o3 + j), y0, a3)
    i = 4 * r
    res[i], res[i + 1], res[i + 2], res[i + 3] = total(a0), total(a1), total(a2), total(a3)
