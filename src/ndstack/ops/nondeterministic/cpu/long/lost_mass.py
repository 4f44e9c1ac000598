# mypy: allow-untyped-defs, allow-untyped-calls
"""What underflow can cost a block of time steps (see `forward` and `cpu.lost_mass`).

Within a block numbers are relative to the time before it, so they drift, and a column of small probability
has small numbers. Nothing is lost if every product of positive numbers is above the smallest normal number.
Otherwise each product loses no more than that number, and a bound on the mass of runs lost so far goes from
step to step: lost[q, x] for each configuration type, and for each state q one on
the sum over x, which keeps pops from being counted once for every symbol that they may uncover. In a sum
sum_x lost[q, x] w[q, x], what is known of lost gives

    min( sum_x lost[q, x] w[q, x],  lost_sum[q] max_x w[q, x] ).

A block whose numbers leave the range, or that may have lost too much, is done again step by step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.long.columns import tiny_of
from ndstack.ops.nondeterministic.cpu.long.forward import base_row, smallest_positive
from ndstack.ops.runtime.simd import kernel, maker


class Bound(NamedTuple):
    """Bounds on the mass of lost runs, relative to all mass; float64.

    Attributes:
        each, each_after: [K], for each configuration type.
        sums, sums_after: [Q], for each state.
    """

    each: np.ndarray
    each_after: np.ndarray
    sums: np.ndarray
    sums_after: np.ndarray


@maker
def make_bound(shape):
    """Room for the bounds."""
    K = shape.states * shape.symbols
    return Bound(np.zeros(K), np.zeros(K), np.zeros(shape.states), np.zeros(shape.states))


@kernel
def _smaller_product(least, weight, floor):
    """The smaller of `least` and the product, which counts if the weight is positive."""
    x = weight * floor if weight > 0 else math.inf
    return x if x < least else least


@kernel
def _least_of_step(shape, n, actions, block, least):
    """The smallest product of a weight of step t0 + n and a row before it; 0 if a weight got lost."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    for d in range(K):
        rows, inner = block.floor_rows[n - 1, d], block.floor_inner[n - 1, d]
        low = rows if rows < inner else inner
        low = low if low < 1.0 else 1.0
        for b in range(K):
            x, y = block.push[n, d * K + b], block.replace[n, d * K + b]
            if (x == 0 and actions[d * K + b] > -math.inf) or (
                y == 0 and actions[K * K + d * K + b] > -math.inf
            ):
                return 0.0
            least = _smaller_product(_smaller_product(least, x, 1.0), y, low)
        for r in range(Q):
            x = block.pop[n, d * Q + r]
            if x == 0 and actions[2 * K * K + d * Q + r] > -math.inf:
                return 0.0
            least = _smaller_product(least, x, low)
    for y in range(S):
        for k in range(n - 1):
            for u in range(Q):
                place = (((n * S + y) * block.size + k) * Q + u) * Q
                rows, inner = block.floor_rows[k, u * S + y], block.floor_inner[k, u * S + y]
                low = rows if rows < inner else inner
                low = low if low < 1.0 else 1.0
                for r in range(Q):
                    least = _smaller_product(least, block.popped_inner[place + r], low)
    return least


@kernel
def nothing_lost(shape, past, t0, count, actions, block):
    """Whether no product of the block can have underflowed, nor any number of the new columns."""
    K = shape.states * shape.symbols
    least = block.least[0]
    for n in range(count + 1):
        for b in range(K):
            place = (n * K + b) * block.wide
            most = past.chart.dtype.type(math.inf)
            block.floor_inner[n, b] = smallest_positive(block.inner, place, place + n * K, most)
            least = _smaller_product(least, 1.0, block.floor_rows[n, b])
            least = _smaller_product(least, 1.0, block.floor_inner[n, b])
            if block.alpha[n, b] > 0:
                least = _smaller_product(least, 1 / block.alpha[n, b], block.floor_rows[n, b])
            if n == 0:
                least = _smaller_product(least, block.alpha[0, b], past.floor[t0, b])
    for n in range(1, count + 1):
        least = _least_of_step(shape, n, actions[t0 + n - 1], block, least)
    return least >= 2 * tiny_of(past.chart)


@kernel
def _lost_of_state(bound, q, S, weights, place, stride):
    """The most that the lost runs of state q can weigh after a step of these weights, by their symbol."""
    total = top = 0.0
    for x in range(S):
        w = weights[place + x * stride]
        total += bound.each[q * S + x] * w
        top = w if w > top else top
    top *= bound.sums[q]
    return total if total < top else top


@kernel
def _advance_bound(shape, n, block, bound, factor, fresh):
    """The bounds after step t0 + n.

    Args:
        factor: what all weights are multiplied by.
        fresh: what each configuration type loses in the step.
    """
    Q, S = shape.states, shape.symbols
    K = Q * S
    push, replace, pop, sums = block.push[n], block.replace[n], block.pop[n], block.likely
    for r in range(Q):
        bound.sums_after[r] = S * fresh
        for y in range(S):
            bound.each_after[r * S + y] = fresh
        for q in range(Q):
            for x in range(S):
                sums[x] = pop[(q * S + x) * Q + r]
            popped = _lost_of_state(bound, q, S, sums, 0, 1)
            for y in range(S):
                b = r * S + y
                for x in range(S):
                    d = (q * S + x) * K + b
                    sums[S + x] = push[d] + replace[d]
                    sums[x] += sums[S + x]
                bound.each_after[b] += factor * (popped + _lost_of_state(bound, q, S, sums, S, 1))
            bound.sums_after[r] += factor * _lost_of_state(bound, q, S, sums, 0, 1)
    for r in range(Q):
        bound.sums[r] = bound.sums_after[r]
        for y in range(S):
            x = bound.each_after[r * S + y]
            bound.each[r * S + y] = x if x < bound.sums[r] else bound.sums[r]


@kernel
def bound_loss(shape, past, t0, count, actions, block, bound, limit, strict):
    """Update the bounds. Returns False if more than e^limit of all mass may be lost.

    With `strict`, of the mass of some configuration type.
    """
    Q, S = shape.states, shape.symbols
    K = Q * S
    exact = nothing_lost(shape, past, t0, count, actions, block)
    total_lost = 0.0
    for q in range(Q):
        total_lost += bound.sums[q]
    if exact and total_lost == 0.0:
        return True
    most, before, top = math.exp(limit), 1.0, 1.0
    for n in range(1, count + 1):
        total = 0.0
        for b in range(K):
            total += block.alpha[n, b]
        top = total if total > top else top
        cells, terms = (t0 + n - base_row(shape, t0)) * K, K + Q * (t0 + n)
        fresh = 0.0 if exact else 4.0 * cells * terms * tiny_of(past.chart) * top / total
        _advance_bound(shape, n, block, bound, before / total, fresh)
        before, total_lost = total, 0.0
        for q in range(Q):
            total_lost += bound.sums[q]
        if not total_lost <= most:
            return False
        for b in range(K):
            if strict and bound.each[b] > most * block.alpha[n, b] / total:
                return False
    return True


@kernel
def take_bound(shape, past, bound):
    """The bounds that single steps have left in `past.lost`."""
    S = shape.symbols
    for q in range(shape.states):
        bound.sums[q] = 0.0
        for x in range(S):
            lost = past.lost[q * S + x]
            bound.each[q * S + x] = math.exp(lost if lost > -690.0 else -690.0) if lost > -math.inf else 0.0
            bound.sums[q] += bound.each[q * S + x]


@kernel
def leave_bound(shape, past, bound):
    """The bounds into `past.lost`, for single steps."""
    for b in range(shape.states * shape.symbols):
        x = bound.each[b]
        past.lost[b] = math.log(x) if x > 0.0 else -math.inf
