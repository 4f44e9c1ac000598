# mypy: allow-untyped-defs, allow-untyped-calls
"""A bound on what underflow can cost, kept beside the compiled forward pass.

Only numbers inside a column can underflow. Where a product of a positive weight and the smallest
positive number of a column is below the smallest normal number, the runs behind it may be lost; up
to that number for each place of a column. From then on

    lost_t[b] = ( sum_a lost_{t-1}[a] (e^{push[a, b]} + e^{replace[a, b]})
                  + sum_d lost_{t-1}[d] e^{pop[d, r]} ) / (total weight of step t)

bounds the mass of lost runs at b: a run that is lost stays lost, whatever it pushes, and what a
pop uncovers is not known, so it counts for every y. All this is done in logarithms, and only once
something may be lost, which is rare.
"""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.nondeterministic.precision_margin import MARGIN
from ndstack.ops.runtime.simd import kernel, kernel_loop, lanes, least_positive, load, store

FLOAT32_TINY, FLOAT64_TINY = float(np.finfo(np.float32).tiny), float(np.finfo(np.float64).tiny)
"""The smallest normal numbers."""


@kernel_loop
def _smallest(X, place, length, cell):
    """The smallest positive number among X[place : place + length], which ends in zeros."""
    for j in range(cell.size):
        cell[j] = math.inf
    least = load(cell, 0)
    for j in range(0, length, lanes(X)):
        least = least_positive(least, load(X, place + j))
    store(cell, 0, least)
    best = float(cell[0])
    for j in range(1, cell.size):
        best = cell[j] if cell[j] < best else best
    return best


@kernel
def _tiny(X):
    """The smallest number that counts as safe from underflow, for the dtype of X."""
    return MARGIN * (FLOAT32_TINY if X.itemsize == 4 else FLOAT64_TINY)


@kernel
def largest(values, count):
    """The largest of the first numbers of an array; nan if one of them is nan."""
    best = values[0]
    for j in range(1, count):
        x = values[j]
        best = x if x > best or x != x else best
    return best


@kernel
def find_floors(shape, past, t, cell):
    """The smallest positive number of each column of time t, infinity if none; and that of all columns."""
    K = shape.states * shape.symbols
    length = (shape.band if shape.band > 0 else t + 1) * K
    best = math.inf
    for b in range(K):
        least = _smallest(past.chart, shape.start[t] + b * shape.stride[t], length, cell)
        past.floor[t, b] = least
        best = least if least < best else best
    return best


@kernel
def nothing_lost(shape, past, t, push, replace, pop, work, room, floor):
    """A quick test: True if no product of step t can have underflowed.

    Args:
        floor: the smallest positive number of the chart before step t.
    """
    Q, K = shape.states, shape.states * shape.symbols
    tiny, floor = _tiny(past.chart), floor if floor < 1.0 else 1.0
    fine = True
    length = (t if shape.band == 0 else shape.band - 1) * K
    for r in range(Q):
        least = _smallest(work.popped, r * room, length, work.cell)
        for y in range(shape.symbols):
            b = r * shape.symbols + y
            fine &= work.uncovered[b] == 0.0 or work.epop[b] * least * floor >= tiny
    if _least(work.joint, 2 * K * K) * floor >= tiny and _least(work.exponents, K * Q) * floor >= tiny:
        return fine  # all weights of push, replace and pop are positive, as they mostly are
    return fine and _weights_kept(shape, past, t, push, replace, pop, work, tiny, floor)


@kernel_loop
def _least(values, count):
    """The least of the first numbers of an array; four comparisons at a time do not wait for each other."""
    a = b = c = d = values[0]
    for j in range(0, count - 3, 4):
        a = values[j] if values[j] < a else a
        b = values[j + 1] if values[j + 1] < b else b
        c = values[j + 2] if values[j + 2] < c else c
        d = values[j + 3] if values[j + 3] < d else d
    for j in range(count - count % 4, count):
        a = values[j] if values[j] < a else a
    a, b = (a if a < b else b), (c if c < d else d)
    return a if a < b else b


@kernel
def _weights_kept(shape, past, t, push, replace, pop, work, tiny, floor):
    """Whether the weights of step t are large enough that no product with a number of the chart underflows.

    Weights of 0 underflow nothing, if their logarithms are -inf.
    """
    Q, K = shape.states, shape.states * shape.symbols
    before, after = past.log_alpha[t - 1], past.log_total[t]
    bound, fine = math.log(tiny) - math.log(floor), True
    for d in range(K):
        if before[d] == -math.inf:
            continue
        for r in range(Q):
            x = before[d] + pop[d * Q + r]
            fine &= x == -math.inf or x - work.best_pop[r] > bound
        for b in range(K):
            x = before[d] + push[d * K + b]
            fine &= x == -math.inf or x - after[b] > bound
            x = before[d] + replace[d * K + b]
            fine &= x == -math.inf or x - after[b] > bound
    return fine


@kernel
def _pop_may_lose(shape, past, t, r, pop, work, tiny):
    """Whether a term of A[r; ...] may have underflowed."""
    Q = shape.states
    for d in range(Q * shape.symbols):
        x = past.log_alpha[t - 1, d] + pop[d * Q + r]
        if x > -math.inf and math.exp(x - work.best_pop[r]) * past.floor[t - 1, d] < tiny:
            return True
    return False


@kernel
def _column_may_lose(shape, past, t, r, y, push, replace, work, room, tiny):
    """Whether a term of the column (t, (r, y)) may have underflowed."""
    Q, S = shape.states, shape.symbols
    K, b = Q * S, r * S + y
    low = t - shape.band if shape.band > 0 else -1
    lowest = low + 1 if low > -1 else 0
    for d in range(K):
        before = past.log_alpha[t - 1, d]
        if before + push[d * K + b] > -math.inf and work.wpush[d * K + b] < tiny:
            return True
        x = work.wreplace[d * K + b] * past.floor[t - 1, d]
        if before + replace[d * K + b] > -math.inf and x < tiny:
            return True
    scale = work.epop[b]
    for k in range(lowest, t - 1):
        for u in range(Q):
            a = work.popped[r * room + (k - low) * K + u * S + y]
            if a > 0 and scale * a * past.floor[k, u * S + y] < tiny:
                return True
    return False


@kernel
def log_sum(values, count):
    """log sum exp of the first numbers of an array, of nothing but zeros too."""
    best = largest(values, count)
    total = 0.0
    for j in range(count if best > -math.inf else 0):
        total += math.exp(values[j] - best)
    return best + math.log(total) if best > -math.inf else -math.inf


@kernel
def _log_add(x, y):
    """log(e^x + e^y), of zeros too."""
    best, other = (x, y) if x > y else (y, x)
    return best + math.log1p(math.exp(other - best)) if other > -math.inf else best


@kernel
def _inherited(shape, past, r, y, push, replace, pop, terms):
    """The log weight at (r, y) of runs that were lost before."""
    Q, K = shape.states, shape.states * shape.symbols
    b = r * shape.symbols + y
    for d in range(K):
        terms[d] = past.lost[d] + push[d * K + b]
        terms[K + d] = past.lost[d] + replace[d * K + b]
        terms[2 * K + d] = past.lost[d] + pop[d * Q + r]
    return log_sum(terms, 3 * K)


@kernel
def lost_mass(shape, past, t, push, replace, pop, work, room, norm, limit, strict):
    """Update `past.lost`. Returns False if more than e^limit of all mass may be lost.

    With `strict`, of the mass of some configuration type. Slow; not needed where `nothing_lost` and
    nothing was lost before.
    """
    Q, S = shape.states, shape.symbols
    K = Q * S
    tiny, new, terms = _tiny(past.chart), work.fresh, work.terms
    fresh = math.log(tiny) + math.log((t + 1.0) * K)
    any_new = False
    for r in range(Q):
        popped = _pop_may_lose(shape, past, t, r, pop, work, tiny)
        for y in range(S):
            b = r * S + y
            new[b] = fresh + work.best_pop[r] if popped else -math.inf
            if past.log_total[t, b] > -math.inf and _column_may_lose(
                shape, past, t, r, y, push, replace, work, room, tiny
            ):
                new[b] = _log_add(new[b], fresh + past.log_total[t, b])
            any_new |= new[b] > -math.inf
    if not any_new and largest(past.lost, K) == -math.inf:
        return True
    for r in range(Q):
        for y in range(S):
            new[r * S + y] = _log_add(
                new[r * S + y], _inherited(shape, past, r, y, push, replace, pop, terms)
            )
    if norm == -math.inf:
        return largest(new, K) == -math.inf
    fine = True
    for b in range(K):
        past.lost[b] = new[b] - norm
        if strict and new[b] > -math.inf:
            fine &= new[b] - past.log_total[t, b] <= limit
    return fine and log_sum(past.lost, K) <= limit
