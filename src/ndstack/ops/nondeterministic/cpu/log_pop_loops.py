# mypy: allow-untyped-defs, allow-untyped-calls
"""The pop rule in log space, compiled: the cubic part of a step, on the chart as it lies in memory.

    out[i, (q, x), r, y] = log sum_{k > i, u} e^(gamma[i -> k; (q, x), (u, y)] + extended[k; (u, y), r])

The numbers of gamma[i -> k] for all k follow one another, K * K of them for each k. So for each i and r, all
terms are one row of the chart plus a row in which `extended` is repeated for every (q, x). Sums over k are
those of each place in the block of a k. Every sum is relative to its own largest term.
"""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import entry, kernel, kernel_loop

BLOCKS = 16
"""How many blocks are taken at a time, so that their terms stay in the nearest cache."""


@kernel
def _repeat(extended, Q, S, r, out):
    """out[k, (q, x), (u, y)] = extended[k, (u, y), r], flat; extended is [k, K * Q]."""
    K = Q * S
    for k in range(extended.shape[0]):
        for a in range(K):
            for d in range(K):
                out[(k * K + a) * K + d] = extended[k, d * Q + r]


@kernel_loop
def _largest_terms(gamma, at, extended, first, count, width, tops):
    """The largest of the terms gamma + extended of each place in a block, over `count` blocks."""
    for k in range(0, count * width, width):
        for j in range(width):
            x = gamma[at + k + j] + extended[first + k + j]
            tops[j] = x if x > tops[j] else tops[j]


@kernel_loop
def _terms(gamma, at, extended, first, pattern, width, out):
    """out = gamma + extended - pattern, where the pattern is that of each block."""
    for k in range(0, out.size, width):
        for j in range(width):
            out[k + j] = gamma[at + k + j] + extended[first + k + j] - pattern[j]


@kernel_loop
def _sum_blocks(terms, width, sums):
    """sums += the terms of each block."""
    for k in range(0, terms.size, width):
        for j in range(width):
            sums[j] += terms[k + j]


@kernel_loop
def _add_weighted(terms, weights, width, first, first_at, second, second_at):
    """Add weights * terms, in each block, to two arrays."""
    for k in range(0, terms.size, width):
        for j in range(width):
            x = terms[k + j] * weights[j]
            first[first_at + k + j] += x
            second[second_at + k + j] += x


@kernel
def _add_out(Q, S, r, tops, sums, out):
    """Write out[(q, x), r, y] for all (q, x) and y, given tops and sums of each place in a block."""
    K = Q * S
    for a in range(K):
        for y in range(S):
            total = 0.0
            for u in range(Q):
                total += sums[a * K + u * S + y]
            out[(a * Q + r) * S + y] = tops[a * K + y] + math.log(total) if total > 0 else -math.inf


@kernel
def _join_tops(Q, S, tops):
    """Make the largest terms those of all u, and 0 where there are no terms."""
    K = Q * S
    for a in range(0, K * K, K):
        for y in range(S):
            best = -math.inf
            for u in range(Q):
                best = tops[a + u * S + y] if tops[a + u * S + y] > best else best
            for u in range(Q):
                tops[a + u * S + y] = best if best > -math.inf else 0.0


@entry
def forward(lo, hi, Q, S, gamma, offset, strides, times, extended, out):
    """Sequences lo .. hi - 1 of a batch.

    Args:
        gamma: the memory of a chart, flat; gamma[i -> k] of sequence b is at offset + strides of (b, i, k).
        strides: of b and i; that of k is K * K.
        times: how many i and how many k there are; the k of number j is that of i = j plus 1.
        extended: [B, k, K * Q].
        out: [B, i, K * Q * S], to be written.
    """
    K = Q * S
    width, starts, ends = K * K, times[0], times[1]
    rows, room = np.empty((Q, ends * width)), np.empty(BLOCKS * width)
    tops, sums = np.empty(width), np.empty(width)
    for b in range(lo, hi):
        for r in range(Q):
            _repeat(extended[b], Q, S, r, rows[r])
        for i in range(starts):
            count = ends - i if ends > i else 0
            at = offset + b * strides[0] + i * strides[1] + i * width
            for r in range(Q):
                fill(tops, 0, width, -math.inf)
                fill(sums, 0, width, 0.0)
                _largest_terms(gamma, at, rows[r], i * width, count, width, tops)
                _join_tops(Q, S, tops)
                for k in range(0, count, BLOCKS):
                    terms = room[: min(BLOCKS, count - k) * width]
                    _terms(gamma, at + k * width, rows[r], (i + k) * width, tops, width, terms)
                    exp_each(terms)
                    _sum_blocks(terms, width, sums)
                _add_out(Q, S, r, tops, sums, out[b, i])


@entry
def backward(lo, hi, Q, S, gamma, offset, strides, times, extended, out, grad, by_gamma, by_extended):
    """The derivatives of `forward`, to be added to zeros; [B, i, k, K * K] and [B, k, K * Q]."""
    K = Q * S
    width, starts, ends = K * K, times[0], times[1]
    rows, room, sums = np.empty(ends * width), np.empty(BLOCKS * width), np.empty(ends * width)
    tops, weights = np.empty(width), np.empty(width)
    for b in range(lo, hi):
        for r in range(Q):
            _repeat(extended[b], Q, S, r, rows)
            fill(sums, 0, sums.size, 0.0)
            for i in range(starts):
                count = ends - i if ends > i else 0
                at = offset + b * strides[0] + i * strides[1] + i * width
                for a in range(K):
                    for d in range(K):
                        place = (a * Q + r) * S + d % S
                        alive = out[b, i, place] > -math.inf
                        tops[a * K + d] = out[b, i, place] if alive else math.inf
                        weights[a * K + d] = grad[b, i, place] if alive else 0.0
                for k in range(0, count, BLOCKS):
                    terms, own = room[: min(BLOCKS, count - k) * width], (i + k) * width
                    _terms(gamma, at + k * width, rows, own, tops, width, terms)
                    exp_each(terms)
                    _add_weighted(terms, weights, width, by_gamma[b], i * ends * width + own, sums, own)
            for k in range(ends):
                for d in range(K):
                    for a in range(K):
                        by_extended[b, k, d * Q + r] += sums[(k * K + a) * K + d]
