# mypy: allow-untyped-defs, allow-untyped-calls
"""alpha and the columns of the chart from the rows of a block of time steps (see `forward`)."""

from __future__ import annotations

import math

from ndstack.ops.nondeterministic.cpu.forward import first_of, masses
from ndstack.ops.nondeterministic.cpu.long.forward import (
    STRIP,
    base_row,
    scale,
    smallest_positive,
    strip_place,
)
from ndstack.ops.nondeterministic.cpu.lost_mass import FLOAT32_TINY, FLOAT64_TINY
from ndstack.ops.nondeterministic.precision_margin import MARGIN
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import kernel


@kernel
def tiny_of(X):
    """The smallest normal number of the dtype of X."""
    return FLOAT32_TINY if X.itemsize == 4 else FLOAT64_TINY


@kernel
def find_alpha(shape, past, t0, count, block):
    """alpha of the block's times, into the chart's logarithms. Returns whether no number left the range."""
    K = shape.states * shape.symbols
    alpha = block.alpha
    least = MARGIN * tiny_of(past.chart)
    before = 1.0
    for n in range(1, count + 1):
        low = first_of(shape, t0 + n)
        total = 0.0
        for b in range(K):
            column = (n * K + b) * block.wide
            for i in range(low - t0 if low > t0 else 0, n):
                for a in range(K):
                    alpha[n, b] += alpha[i, a] * block.inner[column + i * K + a]
            alpha[n, b] = alpha[n, b] if alpha[n, b] >= 2 * tiny_of(past.chart) else 0.0
            total += alpha[n, b]
        if not least < total < 1 / least:
            return False
        for b in range(K):
            x = math.log(alpha[n, b]) if alpha[n, b] > 0 else -math.inf
            past.log_total[t0 + n, b] = x - math.log(before) + block.growth[n]
            past.log_alpha[t0 + n, b] = x - math.log(total)
        before = total
    return True


@kernel
def write_columns(shape, past, t0, count, block):
    """P_t from R, g and alpha, and the smallest positive number of each of its columns."""
    K = shape.states * shape.symbols
    P, base = past.chart, base_row(shape, t0)
    for n in range(1, count + 1):
        t, low = t0 + n, first_of(shape, t0 + n)
        oldest = low if low > base else base
        for b in range(K):
            inverse = 1 / block.alpha[n, b] if block.alpha[n, b] > 0 else 0.0
            column = shape.start[t] + b * shape.stride[t]
            for strip in range((t0 - base + STRIP - 1) // STRIP):
                i0 = base + STRIP * strip
                first, last = i0 if i0 > low else low, i0 + STRIP if i0 + STRIP < t0 else t0
                source = strip_place(shape, block, strip, n * K + b) + (first - i0) * K
                place = column + (first - low) * K
                scale(block.rows, source, P.dtype.type(inverse), P, place, (last - first) * K)
            for i in range(t0 if t0 > low else low, t):
                place, source = column + (i - low) * K, (n * K + b) * block.wide + (i - t0) * K
                for a in range(K):
                    x = block.alpha[i - t0, a] * inverse * block.inner[source + a]
                    P[place + a] = x
                    if x < block.least[0] and block.alpha[i - t0, a] > 0 and block.inner[source + a] > 0:
                        block.least[0] = x
            place = column + (oldest - low) * K
            least = smallest_positive(P, place, column + (t - low) * K, P.dtype.type(math.inf))
            past.floor[t, b] = least
            past.lost[K] = least if least < past.lost[K] else past.lost[K]
            if shape.band == 0:
                fill(P, column + (t + 1) * K, column + shape.stride[t], 0)
        if shape.band > 0:
            masses(shape, past, t)
