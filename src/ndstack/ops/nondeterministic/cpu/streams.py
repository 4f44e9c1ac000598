# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of the columns of many times, each of which is read from one end to the other.

`combine` of `blocks` keeps a part of the results in registers, and reads that part of all columns: a few
cache lines here and a few there, which the processor does not foresee. The loops of this module keep the
weights of a few columns in registers instead, and read these columns from end to end, which it does. They
pay for it by reading and writing the results once for each group of columns. There are loops for two and
three states, and for machines with many and with few registers (see `narrow`).
"""

from __future__ import annotations

from ndstack.ops.runtime.simd import (
    fma,
    has_wide_registers,
    kernel,
    kernel_loop,
    lanes,
    load,
    load_half,
    spread,
    spread_half,
    store,
)

GROUP = 4
"""How many times are added at once; their columns have zeros after their ends, up to the longest of them."""


LONG = 256
"""The results that are worth it have so many numbers; shorter ones take longer than with `combine`."""


@kernel
def streamed(states, length):
    """Whether results of this length, for so many states, are computed by the loops of this module."""
    return (states == 2 or states == 3) and length >= LONG


@kernel
def add_times(X, each, size, S, W, first, K, apart, lengths, groups, out, pos):
    """out[pos[r] + j] += sum_{k, u} W[first + k * K + u * S + r * apart] X[each[u * S * size + k] + j].

    For k < GROUP * groups, all u and r, and j < lengths[k // GROUP], rounded up to whole vectors.

    Args:
        each: where the columns of one (u, y) are, for all k; those of (u + 1, y) are S * size later.
        K: |Q| S.
    """
    if K == 2 * S:
        add_two(X, each, each[S * size :], S, W, first, K, apart, lengths, groups, out, pos)
    else:
        add_three(
            X, each, each[S * size :], each[2 * S * size :], S, W, first, K, apart, lengths, groups, out, pos
        )  # fmt: skip


@kernel_loop
def _wide_add_two(X, one, two, S, W, first, K, apart, lengths, groups, out, pos):
    p, q = pos[0], pos[1]
    for g in range(groups):
        i = first + GROUP * g * K
        a0, a1, a2, a3 = one[4 * g], one[4 * g + 1], one[4 * g + 2], one[4 * g + 3]
        b0, b1, b2, b3 = two[4 * g], two[4 * g + 1], two[4 * g + 2], two[4 * g + 3]
        u0, u1, u2, u3 = spread(W, i), spread(W, i + K), spread(W, i + 2 * K), spread(W, i + 3 * K)
        i += S
        v0, v1, v2, v3 = spread(W, i), spread(W, i + K), spread(W, i + 2 * K), spread(W, i + 3 * K)
        i += apart
        z0, z1, z2, z3 = spread(W, i), spread(W, i + K), spread(W, i + 2 * K), spread(W, i + 3 * K)
        i -= S
        w0, w1, w2, w3 = spread(W, i), spread(W, i + K), spread(W, i + 2 * K), spread(W, i + 3 * K)
        for j in range(0, lengths[g], lanes(X)):
            m, n, x, y = load(out, p + j), load(out, q + j), load(X, a0 + j), load(X, b0 + j)
            m, n = fma(v0, y, fma(u0, x, m)), fma(z0, y, fma(w0, x, n))
            x, y = load(X, a1 + j), load(X, b1 + j)
            m, n = fma(v1, y, fma(u1, x, m)), fma(z1, y, fma(w1, x, n))
            x, y = load(X, a2 + j), load(X, b2 + j)
            m, n = fma(v2, y, fma(u2, x, m)), fma(z2, y, fma(w2, x, n))
            x, y = load(X, a3 + j), load(X, b3 + j)
            store(out, p + j, fma(v3, y, fma(u3, x, m)))
            store(out, q + j, fma(z3, y, fma(w3, x, n)))


@kernel_loop
def _wide_add_three(X, one, two, three, S, W, first, K, apart, lengths, groups, out, pos):
    p, q, r = pos[0], pos[1], pos[2]
    for pair in range(2 * groups):
        i, k = first + 2 * pair * K, 2 * pair
        a0, b0, c0, a1, b1, c1 = one[k], two[k], three[k], one[k + 1], two[k + 1], three[k + 1]
        u0, v0, w0 = spread(W, i), spread(W, i + S), spread(W, i + 2 * S)
        u1, v1, w1 = spread(W, i + K), spread(W, i + K + S), spread(W, i + K + 2 * S)
        i += apart
        u2, v2, w2 = spread(W, i), spread(W, i + S), spread(W, i + 2 * S)
        u3, v3, w3 = spread(W, i + K), spread(W, i + K + S), spread(W, i + K + 2 * S)
        i += apart
        u4, v4, w4 = spread(W, i), spread(W, i + S), spread(W, i + 2 * S)
        u5, v5, w5 = spread(W, i + K), spread(W, i + K + S), spread(W, i + K + 2 * S)
        for j in range(0, lengths[pair // 2], lanes(X)):
            h, m, n = load(out, p + j), load(out, q + j), load(out, r + j)
            x, y, z = load(X, a0 + j), load(X, b0 + j), load(X, c0 + j)
            h, m, n = fma(u0, x, h), fma(u2, x, m), fma(u4, x, n)
            h, m, n = fma(v0, y, h), fma(v2, y, m), fma(v4, y, n)
            h, m, n = fma(w0, z, h), fma(w2, z, m), fma(w4, z, n)
            x, y, z = load(X, a1 + j), load(X, b1 + j), load(X, c1 + j)
            h, m, n = fma(u1, x, h), fma(u3, x, m), fma(u5, x, n)
            h, m, n = fma(v1, y, h), fma(v3, y, m), fma(v5, y, n)
            store(out, p + j, fma(w1, z, h))
            store(out, q + j, fma(w3, z, m))
            store(out, r + j, fma(w5, z, n))


@kernel_loop
def _narrow_add_two(X, one, two, S, W, first, K, apart, lengths, groups, out, pos):
    p, q = pos[0], pos[1]
    for pair in range(2 * groups):
        i, k = first + 2 * pair * K, 2 * pair
        a0, b0, a1, b1 = one[k], two[k], one[k + 1], two[k + 1]
        u0, v0, u1, v1 = (
            spread_half(W, i),
            spread_half(W, i + S),
            spread_half(W, i + K),
            spread_half(W, i + K + S),
        )
        i += apart
        u2, v2, u3, v3 = (
            spread_half(W, i),
            spread_half(W, i + S),
            spread_half(W, i + K),
            spread_half(W, i + K + S),
        )
        for j in range(0, lengths[pair // 2], lanes(X) // 2):
            x, y = load_half(X, a0 + j), load_half(X, b0 + j)
            m, n = (
                fma(v0, y, fma(u0, x, load_half(out, p + j))),
                fma(v2, y, fma(u2, x, load_half(out, q + j))),
            )
            x, y = load_half(X, a1 + j), load_half(X, b1 + j)
            store(out, p + j, fma(v1, y, fma(u1, x, m)))
            store(out, q + j, fma(v3, y, fma(u3, x, n)))


@kernel_loop
def _narrow_add_three(X, one, two, three, S, W, first, K, apart, lengths, groups, out, pos):
    p, q, r = pos[0], pos[1], pos[2]
    for k in range(GROUP * groups):
        i, a, b, c = first + k * K, one[k], two[k], three[k]
        u0, v0, w0 = spread_half(W, i), spread_half(W, i + S), spread_half(W, i + 2 * S)
        i += apart
        u1, v1, w1 = spread_half(W, i), spread_half(W, i + S), spread_half(W, i + 2 * S)
        i += apart
        u2, v2, w2 = spread_half(W, i), spread_half(W, i + S), spread_half(W, i + 2 * S)
        for j in range(0, lengths[k // GROUP], lanes(X) // 2):
            x, y, z = load_half(X, a + j), load_half(X, b + j), load_half(X, c + j)
            store(out, p + j, fma(w0, z, fma(v0, y, fma(u0, x, load_half(out, p + j)))))
            store(out, q + j, fma(w1, z, fma(v1, y, fma(u1, x, load_half(out, q + j)))))
            store(out, r + j, fma(w2, z, fma(v2, y, fma(u2, x, load_half(out, r + j)))))


add_two = _wide_add_two if has_wide_registers() else _narrow_add_two
add_three = _wide_add_three if has_wide_registers() else _narrow_add_three
