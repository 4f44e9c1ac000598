# mypy: allow-untyped-defs, allow-untyped-calls
"""One step of Lang's algorithm, compiled. The chart holds probabilities; only alpha is kept as logarithms.

The chart holds, for every time t and configuration types a = (q, x) and b = (r, y),

    P_t[i, a | b] = alpha[i, a] gamma[i, a -> t, b] / alpha[t, b],

the probability that the top symbol stands on configuration type a of time i, given that the run is
at b at time t. With lr the normalised log alpha[t-1], step t is

    mp_r         = max_d (lr_d + pop[d, r]),    CP[d, r] = exp(lr_d + pop[d, r] - mp_r)
    A[r; k, u, y] = sum_d P_{t-1}[k, (u, y) | d] CP[d, r]                        k = 0 .. t-2
    la_b         = log( sum_a e^{lr_a + push[a, b]} + sum_d e^{lr_d + replace[d, b]} kept_{t-1}[d]
                        + e^{mp_r} sum_{k, u} A[r; k, u, y] kept_k[u, y] )
    P_t[i, a | b] = sum_d e^{lr_d + replace[d, b] - la_b} P_{t-1}[i, a | d]
                    + sum_{k, u} e^{mp_r - la_b} A[r; k, u, y] P_k[i, a | (u, y)]
    P_t[t-1, a | b] = e^{lr_a + push[a, b] - la_b}

where kept_k[b] is the mass of the column (k, b) that the window still holds at time t. Without a window it is
1, but for the initial bottom symbol without the bottom fix, for which it is 0.

The factors of P_t are written WU[a, b] = e^{lr_a + push[a, b] - la_b}, E_b = e^{mp_r - la_b} with b = (r, y),
and WR[d, b] = e^{lr_d + replace[d, b] - la_b}. W stands for weight, U for push, R for replace, CP for
conditional pop, mp for the largest pop, la and lr for log alpha before and after normalising. In the code:

    lr   log_alpha[t-1]     mp   best_pop     CP   wpop       A   popped
    la   log_total[t]       WU   wpush        WR   wreplace   E   epop

The pop rule is four functions: `pop_weights` computes A, `find_kept` the mass that it uncovers,
`scale_pops` the products E_b A, and `_uncover` the sum over k and u, which takes nearly all the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import combine, combine_apart
from ndstack.ops.nondeterministic.cpu.lost_mass import find_floors, largest, log_sum, lost_mass, nothing_lost
from ndstack.ops.nondeterministic.cpu.places import moved
from ndstack.ops.nondeterministic.cpu.streams import GROUP, add_times, streamed
from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import add_to_pattern, fill, multiply_pattern
from ndstack.ops.runtime.simd import kernel, lanes


class Shape(NamedTuple):
    """The sizes of a chart and the places of its columns (see `layout`)."""

    states: int
    symbols: int
    band: int
    fix: bool
    start: np.ndarray
    stride: np.ndarray


class Past(NamedTuple):
    """What the steps so far have left, for one sequence.

    Attributes:
        chart: [size], the columns P.
        log_alpha: [times, K], log alpha, normalised at each time; float64.
        log_total: [times, K], log alpha[t] before normalisation, given normalised alpha[t-1].
        mass: [times, D + 1, K], the mass of a column from its j-th i on; empty without a window.
        floor: [times, K], the smallest positive number of a column.
        lost: [K + 1], log of a bound on the mass of runs lost to underflow, and the smallest
            positive number of the whole chart; float64. The first of them is inf if the chart is
            not to be trusted, nan if its sequence is invalid (see `invalid_sequences`).
    """

    chart: np.ndarray
    log_alpha: np.ndarray
    log_total: np.ndarray
    mass: np.ndarray
    floor: np.ndarray
    lost: np.ndarray


@kernel
def first_of(shape, t):
    """The i at which the columns of time t begin."""
    return t - shape.band if shape.band > 0 else -1


@kernel
def lowest_of(shape, t):
    """The smallest k such that what a pop at step t uncovers, at time k, stands on a time in the window."""
    return t - shape.band + 1 if shape.band > 0 and t >= shape.band else 0


@kernel
def find_kept(shape, past, t, work, room):
    """kept_{t-1}[d], and the mass that a pop into state r uncovers: sum_{k, u} A kept_k."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    low, band = first_of(shape, t), shape.band
    for d in range(K):
        if band > 0:
            work.kept[d] = past.mass[t - 1, 1, d]
        else:
            work.kept[d] = 1.0 if t > 1 or shape.fix else 0.0
    lowest = lowest_of(shape, t) if band > 0 or shape.fix else 1
    for r in range(Q):
        fill(work.pattern, 0, work.pattern.size, 0.0)
        if band > 0:
            for k in range(lowest, t - 1):
                at, mass = r * room + (k - low) * K, past.mass[k, low - (k - band)]
                for u in range(0, K, S):
                    for y in range(S):
                        work.pattern[y] += work.popped[at + u + y] * mass[u + y]
        else:
            add_to_pattern(work.popped, r * room + (lowest - low) * K, (t - 1 - lowest) * K, work.pattern)
        for y in range(S):
            work.uncovered[r * S + y] = 0.0
            for j in range(y, work.pattern.size, S):
                work.uncovered[r * S + y] += work.pattern[j]


@kernel
def pop_weights(shape, past, t, pop, work):
    """mp_r, CP, and A[r; k, u, y] for all (k, u, y) from i = first(t) on."""
    Q, K = shape.states, shape.states * shape.symbols
    low = first_of(shape, t)
    for r in range(Q):
        best = -math.inf
        for d in range(K):
            x = past.log_alpha[t - 1, d] + pop[d * Q + r]
            best = x if x > best else best
        work.best_pop[r] = best
        top = best if best > -math.inf else 0.0
        for d in range(K):
            work.exponents[d * Q + r] = past.log_alpha[t - 1, d] + pop[d * Q + r] - top
    exp_each(work.exponents)
    for j in range(K * Q):
        work.wpop[j] = work.exponents[j]
    length = (t - 1 - low) * K
    room = work.popped.shape[0] // Q
    for d in range(K):
        work.off[d] = shape.start[t - 1] + d * shape.stride[t - 1] + (low - first_of(shape, t - 1)) * K
    for r in range(Q):
        work.pos[r] = r * room
        fill(work.popped, r * room, r * room + length + 32, 0)
    fill(work.counts, 0, length // (2 * lanes(past.chart)) + 1, K)
    combine(past.chart, work.off, work.wpop, Q, Q, work.counts, length, work.popped, work.pos)
    return room


@kernel
def totals(shape, past, t, push, replace, work):
    """log alpha[t], normalised and not, and the weights of push, replace and pop."""
    K = shape.states * shape.symbols
    wpush, wreplace, epop, kept = work.wpush, work.wreplace, work.epop, work.kept
    before, best = past.log_alpha[t - 1], past.log_total[t]  # first the largest terms, then log alpha[t]
    for b in range(K):
        mass = work.uncovered[b]
        epop[b] = work.best_pop[b // shape.symbols] if mass > 0 else -math.inf
        best[b] = epop[b] + math.log(mass) if mass > 0 else -math.inf
    for d in range(K):
        row, up, held = d * K, before[d], before[d] if kept[d] > 0 else -math.inf
        share = math.log(kept[d]) if 0 < kept[d] < 1 else 0.0
        for b in range(K):
            x, y = up + push[row + b], held + replace[row + b]
            wpush[row + b], wreplace[row + b] = x, y
            x = x if x > y + share else y + share
            best[b] = x if x > best[b] else best[b]
    top = work.tops
    for b in range(K):
        top[b] = best[b] if best[b] > -math.inf else 0.0
        epop[b] -= top[b]
    for d in range(0, K * K, K):
        for b in range(K):
            wpush[d + b] -= top[b]
            wreplace[d + b] -= top[b]
    exp_each(work.joint)
    total = top  # the same memory
    for b in range(K):
        total[b] = epop[b] * work.uncovered[b]
    for d in range(K):
        for b in range(K):
            total[b] += wpush[d * K + b] + wreplace[d * K + b] * kept[d]
    for b in range(K):
        best[b] += math.log(total[b]) if best[b] > -math.inf else 0.0
        total[b] = 1 / total[b] if total[b] > 0 else 0.0
        epop[b] *= total[b]
    for d in range(0, K * K, K):
        for b in range(K):
            wpush[d + b] *= total[b]
            wreplace[d + b] *= total[b]
    norm = log_sum(best, K)
    for b in range(K):
        past.log_alpha[t, b] = best[b] - (norm if norm > -math.inf else 0.0)
    return norm


@kernel
def scale_pops(shape, t, work, room, length, out, first, apart):
    """out[first + r * apart + (k, u, y)] = E_b A[r; k, u, y], and 0 for the bottom that nothing stands below.

    Its products may be infinite, since `find_kept` does not count them, and infinity times 0 would be nan.
    """
    S = shape.symbols
    K, low = shape.states * S, first_of(shape, t)
    for r in range(shape.states):
        for j in range(0, work.pattern.size, S):
            for y in range(S):
                work.pattern[j + y] = work.epop[r * S + y]
        place = first + r * apart
        multiply_pattern(work.popped, r * room, length, work.pattern, out, place)
        if not shape.fix and low <= 0 and length > -low * K:
            fill(out, place - low * K, place - low * K + K, 0)


@kernel
def clear(shape, past, t):
    """Zeros for the columns of time t; with a window, the store was allocated as zeros."""
    if shape.band == 0:
        first, size = shape.start[t], shape.states * shape.symbols * shape.stride[t]
        fill(past.chart, first, first + size, 0)


@kernel
def _uncover(shape, past, t, work, room):
    """P_t[i, a | (r, y)] += sum_{k, u} E_b A[r; k, u, y] P_k[i, a | (u, y)], the cubic part.

    Groups of times are added by `add_times`, where there is such a loop; the latest ones by `combine`.
    """
    Q, S, P, places = shape.states, shape.symbols, past.chart, work.places
    K, low, lowest = Q * S, first_of(shape, t), lowest_of(shape, t)
    length, step = (t - 1 - low) * K, 2 * lanes(P)
    groups = (t - 1 - lowest) // GROUP if streamed(Q, length) and t - 1 > lowest else 0
    oldest = lowest + GROUP * groups
    for tile in range((length + step - 1) // step):
        own = low + tile * step // K + 1
        known = t - 1 - (own if own > oldest else oldest)
        work.counts[tile] = Q * (known if known > 0 else 0)
    X = P[moved(shape, t) :]
    for y in range(S if oldest < t - 1 else 0):
        for r in range(Q):
            work.pos[r] = shape.start[t] + (r * S + y) * shape.stride[t]
        down = places.down[((y + 1) * places.size + 1 - t) * Q :]  # k from t-2 down
        combine_apart(
            X, down, work.uncovering, length - S + y, -S, room, Q, work.counts, length, P, work.pos
        )  # fmt: skip
    for g in range(groups):
        work.counts[g] = (lowest + GROUP * (g + 1) - 1 - low) * K
    first = (lowest - low) * K
    for y in range(S if groups > 0 else 0):
        for r in range(Q):
            work.pos[r] = shape.start[t] + (r * S + y) * shape.stride[t]
        each = places.each[y * places.size + lowest :]
        add_times(
            X, each, places.size, S, work.uncovering, first + y, K, room, work.counts, groups, P, work.pos
        )  # fmt: skip


@kernel
def columns(shape, past, t, work, room):
    """P_t."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    P, low = past.chart, first_of(shape, t)
    length = (t - 1 - low) * K
    clear(shape, past, t)
    for b in range(K):
        work.off[b] = shape.start[t - 1] + b * shape.stride[t - 1] + (low - first_of(shape, t - 1)) * K
        work.pos[b] = shape.start[t] + b * shape.stride[t]
    for j in range(K * K):
        work.weights[j] = work.wreplace[j]
    step = 2 * lanes(P)
    fill(work.counts, 0, (length + step - 1) // step, K)
    combine(P, work.off, work.weights, K, K, work.counts, length, P, work.pos)
    zero = length - length  # no literal, for which numba would compile `scale_pops` again
    scale_pops(shape, t, work, room, length, work.uncovering, zero, room)
    _uncover(shape, past, t, work, room)
    for b in range(K):
        place = shape.start[t] + b * shape.stride[t] + length
        for a in range(K):
            P[place + a] = work.wpush[a * K + b]


@kernel
def masses(shape, past, t):
    """The mass of the columns of time t, summed from each i to the end."""
    K = shape.states * shape.symbols
    for b in range(K):
        place = shape.start[t] + b * shape.stride[t]
        total = 0.0
        past.mass[t, shape.band, b] = 0.0
        for j in range(shape.band - 1, -1, -1):
            for a in range(K):
                total += past.chart[place + j * K + a]
            past.mass[t, j, b] = total


@kernel
def forward_step(shape, past, t, push, replace, pop, work, limit, strict):
    """Step t. Returns False if the mass lost to underflow may exceed e^limit, or something overflows.

    Args:
        push, replace, pop: [K * K], [K * K], [K * Q], log weights.
        strict: whether the limit holds for every configuration type on its own.
    """
    K = shape.states * shape.symbols
    room = pop_weights(shape, past, t, pop, work)
    find_kept(shape, past, t, work, room)
    norm = totals(shape, past, t, push, replace, work)
    if not (norm < math.inf and largest(work.epop, K) < math.inf):
        return False
    columns(shape, past, t, work, room)
    if shape.band > 0:
        masses(shape, past, t)
    floor, own = past.lost[K], find_floors(shape, past, t, work.cell)
    past.lost[K] = own if own < floor else floor
    if largest(past.lost, K) == -math.inf and nothing_lost(
        shape, past, t, push, replace, pop, work, room, floor
    ):
        return True
    fine = lost_mass(shape, past, t, push, replace, pop, work, room, norm, limit, strict)
    return fine and largest(work.wreplace, K * K) < math.inf


@kernel
def has_invalid_weight(weights):
    """Whether a log weight is nan or +inf (see `invalid_sequences`)."""
    found = False
    for j in range(weights.size):
        found |= not weights[j] < math.inf
    return found


@kernel
def not_finite(values):
    """Whether any number of an array of one dimension is not finite."""
    found = False
    for j in range(values.size):
        found |= not abs(values[j]) < math.inf
    return found


@kernel
def begin(shape, past, work):
    """The chart at time 0."""
    K, zero = shape.states * shape.symbols, np.int64(0)
    for b in range(K):
        past.log_alpha[0, b] = -math.inf if b > 0 else 0.0
        past.lost[b] = -math.inf
    clear(shape, past, zero)
    if shape.fix:
        past.chart[shape.start[0] + (-1 - first_of(shape, zero)) * K] = 1
    if shape.band > 0:
        masses(shape, past, zero)
    past.lost[K] = find_floors(shape, past, zero, work.cell)
