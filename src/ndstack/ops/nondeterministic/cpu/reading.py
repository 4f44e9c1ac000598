# mypy: allow-untyped-defs, allow-untyped-calls
"""What an LSTM reads from a nondeterministic stack at one step, compiled, there and back.

Without vectors a reading is p_b = alpha[t, b] / sum alpha. With vectors it is, for every b,

    r_b = p_b sum_{i, a} P_t[i, a | b] v_i.

A column of the chart has a place for every (i, a). If v_i is written down at each of them, one row for
each of its m components, r is nothing but products of columns and rows (`dots`), and its derivatives
are sums of them (`combine`): with g the derivative with respect to r, and w = p_b g_b,

    by log gamma[i, a -> t, b], divided by P_t:  sum_c w[b, c] v_i[c]       to be added to G_t
    by v_i[c]:         sum_a U_c[i, a],          U_c[i, a] = sum_b w[b, c] P_t[i, a | b]
    by log alpha[i, a]:                          sum_c U_c[i, a] v_i[c]
    by log alpha[t, b], through the sum in p_b:  - p_b (g . r).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine, dots
from ndstack.ops.nondeterministic.cpu.forward import first_of
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import kernel, kernel_loop, lanes, maker


class Rows(NamedTuple):
    """The vectors of one sequence, at all places of a column; from i = -1 on.

    Attributes:
        size: of a row.
        vectors, grads: [m * size], the vectors, and their derivatives from all steps so far.
        uses: [m * size], U of one step.
        products: [4 * ceil(K / 4) * m].
        weights, turned: [K * m] and [m * K], w.
        at: [m], where in each row the column begins.
    """

    size: int
    vectors: np.ndarray
    grads: np.ndarray
    uses: np.ndarray
    products: np.ndarray
    weights: np.ndarray
    turned: np.ndarray
    at: np.ndarray


@kernel
def probabilities(past, t, out):
    """p_t[b], the distribution over configuration types at time t."""
    for b in range(out.size):
        out[b] = math.exp(past.log_alpha[t, b])


@kernel
def attend(shape, past, t, out):
    """out[b, i + 1] = sum_a P_t[i, a | b], for the i that the chart holds."""
    K = shape.states * shape.symbols
    low = first_of(shape, t)
    begin = low if low > -1 else -1
    for b in range(K):
        place = shape.start[t] + b * shape.stride[t] + (begin - low) * K
        _sum_rows(past.chart, place, K, t - begin, out[b], begin + 1)


@kernel_loop
def _sum_rows(P, place, K, count, out, first):
    """out[first + i] = sum_a P[place + i * K + a], for i < count."""
    for i in range(count):
        total = 0.0
        for a in range(K):
            total += P[place + i * K + a]
        out[first + i] = total


@maker
def make_rows(shape, times, m, like):
    """`Rows` for vectors of size m; for m = 0, empty ones."""
    K = shape.states * shape.symbols
    size = times * K + 64
    return Rows(
        size,
        np.zeros(m * size, like.dtype),
        np.zeros(m * size, like.dtype),
        np.zeros(m * size, like.dtype),
        np.zeros(4 * ((K + 3) // 4) * m, like.dtype),
        np.zeros(K * m, like.dtype),
        np.zeros(m * K, like.dtype),
        np.zeros(m, np.int64),
    )


@kernel
def write_vector(shape, rows, j, vector):
    """Put the vector of i = j - 1 in its places."""
    K = shape.states * shape.symbols
    for c in range(vector.size):
        place = c * rows.size + j * K
        fill(rows.vectors, place, place + K, vector[c])


@kernel
def _align(shape, t, rows, work):
    """Where columns of time t and rows begin, from i = first(t), but not before -1; and how long they are."""
    K = shape.states * shape.symbols
    low = first_of(shape, t)
    begin = low if low > -1 else -1
    for d in range(4 * ((K + 3) // 4)):
        work.off[d] = shape.start[t] + (d if d < K else K - 1) * shape.stride[t] + (begin - low) * K
    for c in range(rows.at.size):
        rows.at[c] = c * rows.size + (begin + 1) * K
    return (t - begin) * K


@kernel
def show(shape, past, t, by_state, rows, work, out):
    """The reading of time t."""
    S = shape.symbols
    K, m = shape.states * S, rows.at.size
    fill(out, 0, out.size, 0)
    if m > 0:
        groups, length = (K + 3) // 4, _align(shape, t, rows, work)
        fill(work.counts, 0, groups, length)
        dots(past.chart, work.off, work.counts, groups, rows.vectors, rows.at, m, rows.products)
    for b in range(K):
        p = math.exp(past.log_alpha[t, b])
        place = b if by_state else b % S
        if m == 0:
            out[place] += p
        for c in range(m):
            out[place * m + c] += p * rows.products[4 * (b // 4 * m + c) + b % 4]


@kernel
def show_back(shape, past, adjoint, t, by_state, rows, work, reading, grad, out):
    """The derivatives of `show`, added to those in `adjoint` and `rows`; by log alpha[t], to `out` [K].

    Args:
        reading, grad: what was shown, and its derivative.
    """
    S = shape.symbols
    K, m = shape.states * S, rows.at.size
    mean = 0.0
    for j in range(reading.size):
        mean += reading[j] * grad[j]
    for b in range(K):
        p = math.exp(past.log_alpha[t, b])
        place = b if by_state else b % S
        out[b] = p * ((grad[place] if m == 0 else 0.0) - mean)
        for c in range(m):
            rows.weights[b * m + c] = rows.turned[c * K + b] = p * grad[place * m + c]
    if m > 0:
        _add_gradients(shape, past, adjoint, t, rows, work)


@kernel
def _add_gradients(shape, past, adjoint, t, rows, work):
    K, m = shape.states * shape.symbols, rows.at.size
    length = _align(shape, t, rows, work)
    tile = 2 * lanes(past.chart)
    tiles = (length + tile - 1) // tile
    fill(work.counts, 0, tiles, m)
    combine(rows.vectors, rows.at, rows.turned, K, K, work.counts, length, adjoint.chart, work.off)
    for c in range(m):
        fill(rows.uses, rows.at[c], rows.at[c] + tiles * tile, 0)
    fill(work.counts, 0, tiles, K)
    combine(past.chart, work.off, rows.weights, m, m, work.counts, length, rows.uses, rows.at)
    for c in range(m):
        _add_uses(rows.uses, rows.vectors, rows.grads, rows.at[c], length, adjoint.alpha, rows.at[0])


@kernel_loop
def _add_uses(uses, vectors, grads, place, length, ends, first):
    for j in range(length):
        grads[place + j] += uses[place + j]
    for j in range(length):
        ends[first + j] += uses[place + j] * vectors[place + j]


@kernel
def read_gradient(shape, rows, j, out):
    """Add the derivative of the vector of i = j - 1, from all steps so far, to `out` [m]."""
    K = shape.states * shape.symbols
    for c in range(out.size):
        place = c * rows.size + j * K
        for a in range(K):
            out[c] += rows.grads[place + a]
