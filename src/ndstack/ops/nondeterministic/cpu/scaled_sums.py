# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of blocks of a chart in log space: as exact as logarithms of single numbers, without one for each.

The weights gamma[i, a -> k, b] of ROWS successive times i and of all a are a block, which is kept as numbers
from 0 to 1 and the logarithm of a factor that they share, its scale. If a positive number of a block would
be less than e^-SPREAD, the block is *wide*: it holds logarithms, from -inf to 0, of such numbers.

Columns are weighted sums of the blocks of earlier columns (see `reference` for the equations):

    gamma[. -> t, (r, y)] = sum_d replace[d, (r, y)] gamma[. -> t-1, d]
                          + sum_{k, u} gamma'[k, (u, y) -> t, r] gamma[. -> k, (u, y)]
    gamma'[., . -> t, r]  = sum_d pop[d, r] gamma[. -> t-1, d]

The weights of a sum are relative to its largest term. Terms below e^-NEAR of that are left out, as many of
them are in trained networks. Each of them takes at most e^-NEAR from a number of the result, so if the number
is e^DIGITS times as large as all of that, its digits are right. If not all numbers of the result are, the sum
is made again with CUT in place of NEAR; numbers that even this is not enough for are computed alone, from the
logarithms of all their terms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import fma, kernel, kernel_loop, lanes, load, spread, store

ROWS = 8
"""How many times i have a block together."""

SPREAD, NEAR, CUT, DIGITS = 300.0, 150.0, 400.0, 37.0
"""See above. e^-(SPREAD + CUT) is a normal number, so no product underflows but those of wide blocks."""

Floats = npt.NDArray[np.float64]


class Chart(NamedTuple):
    """The chart of a sequence.

    Attributes:
        times: for how many times there is room.
        numbers: flat; where a block begins is said by `block_at`.
        scales: [blocks, K * times], the scale of gamma[. -> k, b] at [block, b * times + k]; -inf for zeros.
        wide: [blocks, K * times], whether the block holds logarithms.
        alpha: [(times + 1) * K], log alpha[i, a] at (i + 1) * K + a.
    """

    times: int

    numbers: Floats
    scales: Floats
    wide: npt.NDArray[np.bool_]
    alpha: Floats


class Work(NamedTuple):
    """Memory for a step. The term of number b * times + k of a sum is the block of gamma[. -> k, b].

    Attributes:
        extended: [Q, K * times], log gamma'[k, d -> t, r] at [r, d * times + k].
        logs: [Q, K * times], logarithms of the weights of terms, with the scales of their blocks.
        terms: [K * times], the numbers of the terms that are not left out.
        weights: [K * times], their weights relative to the largest term.
        total: [ROWS * K], their sum.
        exact: [ROWS * K], logarithms of what the sum is not exact enough for; +inf elsewhere.
        room: [ROWS * K].
    """

    extended: Floats
    logs: Floats
    terms: npt.NDArray[np.int64]
    weights: Floats
    total: Floats
    exact: Floats
    room: Floats


@kernel
def block_at(chart, block, term, K):
    """Where the block of a term begins, for the times i + 1 = ROWS * block, ...

    For each of these there are all b, and for each b all k > i, so that a sum over k reads on and on.
    """
    earlier = block * chart.times - ROWS * (block * (block - 1) // 2)
    b, k = term // chart.times, term % chart.times
    return ((earlier * K) + b * (chart.times - ROWS * block) + k - ROWS * block) * ROWS * K


@kernel_loop
def _add_block(numbers, at, weights, which, total):
    """total += weights[which] * the block at this place."""
    weight = spread(weights, which)
    for j in range(0, total.size, lanes(total)):
        store(total, j, fma(weight, load(numbers, at + j), load(total, j)))


@kernel_loop
def _shift_block(numbers, at, shift, room):
    for j in range(room.size):
        room[j] = numbers[at + j] + shift


@kernel_loop
def add_logs(left, right, first, last, out):
    """out = left + right, from a first to before a last place."""
    for j in range(first, last):
        out[j] = left[j] + right[j]


@kernel
def largest(values, first, last):
    """The largest number, from a first to before a last place; -inf if there is none."""
    best = -math.inf
    for j in range(first, last):
        best = values[j] if values[j] > best else best
    return best


@kernel_loop
def _select(logs, first, last, least, terms, count):
    """Append the terms above a limit to the first `count` of `terms`; return how many there are then."""
    for j in range(first, last):
        if logs[j] > least:
            terms[count] = j
            count += 1
    return count


@kernel
def log_add(x, y):
    """log(e^x + e^y), of zeros too."""
    best, other = (x, y) if x > y else (y, x)
    return best + math.log1p(math.exp(other - best)) if other > -math.inf else best


@kernel
def logarithm(chart, block, term, K, place):
    """The logarithm of a place of a block, relative to its scale."""
    x = chart.numbers[block_at(chart, block, term, K) + place]
    if chart.wide[block, term]:
        return x
    return math.log(x) if x > 0 else -math.inf


@kernel
def _first_time(block, S, t, y, b):
    """The first k for which gamma[. -> k, b] is a term of a sum (see `sum_blocks`)."""
    return ROWS * block if b % S == y and ROWS * block < t - 1 else t - 1


@kernel
def _log_sum(chart, work, logs, block, Q, S, t, y, place):
    """The logarithm of one place of a sum, from the logarithms of all terms."""
    top, count, K, n = -math.inf, 0, Q * S, chart.times
    for b in range(K):
        for term in range(b * n + _first_time(block, S, t, y, b), b * n + t):
            if logs[term] > -math.inf:
                x = logs[term] + logarithm(chart, block, term, K, place)
                work.weights[count] = x
                count += 1
                top = x if x > top else top
    if top == -math.inf:
        return top
    return top + math.log(_sum_of_exponentials(work.weights[:count], top))


@kernel_loop
def _sum_of_exponentials(values, top):
    """The sum of e^(x - top); the values are overwritten."""
    for j in range(values.size):
        values[j] -= top
    exp_each(values)
    total = 0.0
    for j in range(values.size):
        total += values[j]
    return total


@kernel
def _largest_log(logs, n, block, Q, S, t, y):
    """The logarithm of the largest weight of a sum."""
    top = -math.inf
    for b in range(Q * S):
        best = largest(logs, b * n + _first_time(block, S, t, y, b), b * n + t)
        top = best if best > top else top
    return top


@kernel
def _add_terms(chart, work, logs, block, Q, S, t, y, top, cut):
    """total = the sum of the terms of which none is below e^-cut, relative to the largest."""
    K, n, count, total = Q * S, chart.times, 0, work.total
    for b in range(K):
        first = b * n + _first_time(block, S, t, y, b)
        count = _select(logs, first, b * n + t, top - cut, work.terms, count)
    for j in range(count):
        work.weights[j] = logs[work.terms[j]] - top
    exp_each(work.weights[:count])
    fill(total, 0, total.size, 0.0)
    for j in range(count):
        term = work.terms[j]
        at = block_at(chart, block, term, K)
        if chart.wide[block, term]:
            _shift_block(chart.numbers, at, logs[term] - top, work.room)
            exp_each(work.room)
            work.weights[j] = 1.0
            _add_block(work.room, 0, work.weights, j, total)
        else:
            _add_block(chart.numbers, at, work.weights, j, total)


@kernel
def _inexact(total, first, live, block, K, least):
    """The first place, from one on, that is too small for its digits to be right; `live` if there is none."""
    for place in range(first, live):
        # before the first step there is one configuration; nothing leads from the others
        if total[place] < least and (block > 0 or place == 0 or place >= K):
            return place
    return live


@kernel
def sum_blocks(chart, work, logs, block, Q, S, t, y, live):
    """Sum up blocks; return the scale of the total.

    Args:
        logs: [K * times], logarithms of the weights of terms.
        y: all terms of time t - 1 count, and, unless y is -1, those of earlier times with this symbol.
        live: how many places of the block there are.
    """
    K, total, exact = Q * S, work.total, work.exact
    fill(exact, 0, exact.size, math.inf)
    top = _largest_log(logs, chart.times, block, Q, S, t, y)
    if top == -math.inf:
        fill(total, 0, total.size, 0.0)
        return top
    most = Q * t + K
    _add_terms(chart, work, logs, block, Q, S, t, y, top, NEAR)
    if _inexact(total, 0, live, block, K, most * math.exp(DIGITS - NEAR)) < live:
        least = most * math.exp(DIGITS - CUT)
        _add_terms(chart, work, logs, block, Q, S, t, y, top, CUT)
        place = _inexact(total, 0, live, block, K, least)
        while place < live:
            exact[place] = _log_sum(chart, work, logs, block, Q, S, t, y, place) - top
            place = _inexact(total, place + 1, live, block, K, least)
    return top


@kernel
def log_total(work, place):
    """The logarithm of a place of the last sum, relative to its scale."""
    if work.exact[place] < math.inf:
        return work.exact[place]
    return math.log(work.total[place]) if work.total[place] > 0 else -math.inf


@kernel
def keep_block(chart, work, block, t, b, K, scale):
    """Make the last sum the block of gamma[. -> t, b]."""
    own = b * chart.times + t
    at = block_at(chart, block, own, K)
    chart.wide[block, own] = False
    if _any_exact(work.exact):
        _keep_logarithms(chart, work, block, own, at, scale)
        return
    top = largest(work.total, 0, work.total.size)
    chart.scales[block, own] = scale + math.log(top) if top > 0 else -math.inf
    for place in range(work.total.size):
        chart.numbers[at + place] = work.total[place] / top if top > 0 else 0.0


@kernel_loop
def _any_exact(exact):
    """Whether there is a number that is not +inf."""
    some = False
    for place in range(exact.size):
        some |= exact[place] < math.inf
    return some


@kernel
def _keep_logarithms(chart, work, block, own, at, scale):
    """`keep_block` for sums with numbers that are known as logarithms."""
    top, least = -math.inf, math.inf
    for place in range(work.total.size):
        x = log_total(work, place)
        work.room[place] = x
        top = x if x > top else top
        least = x if -math.inf < x < least else least
    wide = top > -math.inf and least - top < -SPREAD
    for place in range(work.total.size):
        x = work.room[place] - top if top > -math.inf else -math.inf
        chart.numbers[at + place] = x if wide else math.exp(x)
    chart.scales[block, own] = scale + top if top > -math.inf else -math.inf
    chart.wide[block, own] = wide
