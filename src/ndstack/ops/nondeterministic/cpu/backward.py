# mypy: allow-untyped-defs, allow-untyped-calls
"""The gradient of one step of Lang's algorithm, compiled.

Write G_t[i, a | b] for the derivative with respect to log gamma[i, a -> t, b], divided by P_t[i, a | b], ab
for the derivative with respect to log alpha, gr for the part of it that comes from the reading p_t, and kappa
for the derivative with respect to the attention sum_a P_t[i, a | b]. With b = (r, y) and the weights WU, WR,
CP, E and A of step t (see `forward`),

    w[i, b]   = ab[t, b] + gr_b + kappa[i, b];   G_t[i, a | b] += w[i, b]
    ab[i, a] += sum_b P_t[i, a | b] w[i, b]
    dpush[a, b]    = G_t[t-1, a | b] WU[a, b]
    dreplace[d, b] = WR[d, b] sum_{i, a} P_{t-1}[i, a | d] G_t[i, a | b]
    B[r; k, u, y]  = E_b sum_{i < k, a} P_k[i, a | (u, y)] G_t[i, a | (r, y)]
    dpop[d, r]     = CP[d, r] sum_{k, u, y} P_{t-1}[k, (u, y) | d] B[r; k, u, y]

    G_{t-1}[. | d]           += sum_b WR[d, b] G_t[. | b]
    G_{t-1}[k, (u, y) | d]   += sum_r CP[d, r] B[r; k, u, y]
    G_k[. | (u, y)]          += sum_r E_b A[r; k, u, y] G_t[. | (r, y)]

No division is needed. Where P_t[i, a | b] is 0, G_t is set to 0, and so is B where A is 0: what they are
multiplied by is 0, too, and without this they might be infinite. The last three sums are not
carried out at step t. They are gathered when step t-1, or step k, is reached, as one sum of columns
(`gather`). Only columns from before the first step of a call are added to at once (`scatter`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.blocks import (
    combine,
    combine_apart,
    distribute,
    dots,
    dots_of_pairs,
)
from ndstack.ops.nondeterministic.cpu.forward import (
    find_kept,
    first_of,
    lowest_of,
    pop_weights,
    scale_pops,
)
from ndstack.ops.nondeterministic.cpu.places import moved
from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import add_where_present, copy, fill
from ndstack.ops.runtime.simd import kernel, kernel_loop, lanes, maker


class Adjoint(NamedTuple):
    """The derivatives that steps leave for earlier ones, for one sequence.

    Attributes:
        chart: [size], G.
        alpha: [(times + 1) * K + 64], ab, beginning with i = -1.
    """

    chart: np.ndarray
    alpha: np.ndarray


class Later(NamedTuple):
    """What steps t+1 .. of the same call have computed, for `gather`.

    Attributes:
        wreplace: [K * K], WR of step t + 1.
        wpop: [K * Q], CP of step t + 1.
        back: [Q * room], B of step t + 1, from k = first(t+1) on, 32 zeros before each row.
        used: E_b A[r; k, u, y] of all later steps t, in rows from k = first(t) on, as long as those of
            `back`; at `use_of` (t, k) + r * room + u * S + y.
        begin, end: the call's steps are begin + 1 .. end.
        older: whether the derivatives of what came before them are wanted.
    """

    wreplace: np.ndarray
    wpop: np.ndarray
    back: np.ndarray
    used: np.ndarray
    begin: int
    end: int
    older: bool


@kernel
def _users(shape, k, end):
    """How many steps up to `end` can uncover a symbol pushed before or at time k: t from k + 2."""
    last = k + shape.band - 1 if shape.band > 0 and k + shape.band - 1 < end else end
    return last - k - 1 if last > k + 1 else 0


@kernel
def use_of(shape, later, t, k):
    """Where in `later.used` step t has left what it says about k: linear in t, with a window, too."""
    K = shape.states * shape.symbols
    pitch = later.back.shape[0] + (K if shape.band > 0 else 0)
    return (t - later.begin - 1) * pitch + (k - first_of(shape, t)) * K


@kernel
def forget_use(shape, later, first, last):
    """Steps first .. last say nothing about earlier ones."""
    begin = use_of(shape, later, first, first_of(shape, first))
    fill(later.used, begin, use_of(shape, later, last + 1, first_of(shape, last + 1)), 0)


@maker
def make_later(shape, begin, end, older, like):
    """A `Later` for a call of steps begin + 1 .. end."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    length = (shape.band if shape.band > 0 else end + 1) * K + 128
    return Later(
        np.zeros(K * K),
        np.zeros(K * Q, like.dtype),
        np.zeros(Q * length, like.dtype),
        np.empty((end - begin) * (Q * length + K), like.dtype),
        begin,
        end,
        older,
    )


@kernel
def is_ahead(shape, later, t):
    """Whether the use of G_{t-1} by steps from t + 2 on is gathered at step t, together with that of G_t.

    A column that is read for both of them is read once. Both have the same stride, since t is odd.
    """
    return shape.band == 0 and t % 2 == 1 and t - 1 > later.begin


@kernel
def clear_columns(shape, adjoint, later, t):
    """G_t = 0, the zeros between columns included; and G_{t-1} = 0 if step t adds to it.

    It is done step by step, when the columns are about to be read, since a chart may not fit the caches.
    """
    if t < later.end and is_ahead(shape, later, t + 1):
        return
    first = shape.start[t - 1 if is_ahead(shape, later, t) else t]
    fill(adjoint.chart, first, shape.start[t] + shape.states * shape.symbols * shape.stride[t], 0)


@kernel
def gather(shape, adjoint, later, t, work):
    """Add to G_t all that steps t+1, t+2, ... of the call say about it."""
    Q, S = shape.states, shape.symbols
    K, G = Q * S, adjoint.chart
    step, length = 2 * lanes(G), (t - first_of(shape, t)) * K
    shift = K if shape.band > 0 else 0
    tiles = (length + step - 1) // step
    room = later.back.shape[0] // Q
    for tile in range(tiles):
        work.counts[tile] = K if (tile + 1) * step > shift else 0
    for b in range(K):
        work.pos[b] = shape.start[t] + b * shape.stride[t]
        work.off[b] = shape.start[t + 1] + b * shape.stride[t + 1] - shift
        for d in range(K):
            work.weights[b * K + d] = later.wreplace[d * K + b]
    combine(G, work.off, work.weights, K, K, work.counts, length, G, work.pos)
    if t > later.begin:
        _gather_uses(shape, adjoint, later, t, work)
    for tile in range(tiles):
        work.counts[tile] = Q if (tile + 1) * step > shift else 0
    for r in range(Q):
        work.off[r] = r * room + 32 - shift
        for d in range(K):
            work.weights[r * K + d] = later.wpop[d * Q + r]
    for d in range(K):
        work.pos[d] = shape.start[t] + d * shape.stride[t]
    combine(later.back, work.off, work.weights, K, K, work.counts, length, G, work.pos)


@kernel
def _gather_uses(shape, adjoint, later, t, work):
    """G_t[. | (u, y)] += sum_{s, r} E_b A[r; t, u, y] G_s[. | (r, y)], over later steps s.

    If step t + 1 was ahead, only s = t + 2 is left; if step t is, G_{t-1} is added to as well.
    """
    Q, S = shape.states, shape.symbols
    K, G, places = Q * S, adjoint.chart, work.places
    step, length = 2 * lanes(G), (t - first_of(shape, t)) * K
    users = _users(shape, t, later.end)
    if users > 1 and is_ahead(shape, later, t + 1):
        users = users - users + 1  # no literal
    for tile in range((length + step - 1) // step):
        far = ((tile + 1) * step - 1) // K - 1 if shape.band > 0 else users
        far = far if far < users else users
        work.counts[tile] = Q * (far if far > 0 else 0)
    X, room = G[moved(shape, t) :], later.back.shape[0] // Q
    oldest = t - 1 if is_ahead(shape, later, t) else t
    first = use_of(shape, later, t + 2, oldest)
    for y in range(S if users > 0 else 0):
        for k in range(oldest, t + 1):
            for u in range(Q):
                work.pos[(k - oldest) * Q + u] = shape.start[k] + (u * S + y) * shape.stride[k]
        up = places.up[(y * places.size + t + 2) * Q :]
        many = Q * (t + 1 - oldest)
        combine_apart(X, up, later.used, first + y, room, S, many, work.counts, length, G, work.pos)


@kernel
def scatter(shape, adjoint, later, t, work, room):
    """Add what step t says about G_k to it at once, for the k that are older than the call."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    low = first_of(shape, t)
    lowest, last = lowest_of(shape, t), later.begin if later.begin < t - 2 else t - 2
    popped, weights, off, lengths = work.popped, work.weights, work.off, work.counts
    for y in range(S):
        c = lowest - lowest  # no literal, for which numba would compile the loops again
        for k in range(lowest, last + 1):
            place = shape.start[k] + (low - first_of(shape, k)) * K
            for u in range(Q):
                off[c] = place + (u * S + y) * shape.stride[k]
                lengths[c] = (k - low) * K
                source = (k - low) * K + u * S + y
                for r in range(Q):
                    weights[c * Q + r] = work.epop[r * S + y] * popped[r * room + source]
                c += 1
        for r in range(Q):
            work.pos[r] = shape.start[t] + (r * S + y) * shape.stride[t]
        distribute(adjoint.chart, work.pos, weights, Q, adjoint.chart, off, lengths, c)


@kernel
def spread_reading(shape, past, adjoint, t, grad_alpha, grad_attention, work):
    """w: what the reading and the attention of time t say about G_t and ab.

    Args:
        grad_alpha: [K], gr.
        grad_attention: [K, >= t + 1], kappa, beginning with i = -1; or empty.
    """
    K = shape.states * shape.symbols
    low = first_of(shape, t)
    begin = low if low > -1 else -1
    length, step = (t - begin) * K, 2 * lanes(past.chart)
    tiles = (length + step - 1) // step
    G, P, alpha = adjoint.chart, past.chart, adjoint.alpha
    for b in range(K):
        work.off[b] = shape.start[t] + b * shape.stride[t] + (begin - low) * K
        work.weights[b] = alpha[(t + 1) * K + b] + grad_alpha[b]
        add_where_present(work.weights[b], P, G, work.off[b], work.off[b] + tiles * step)
    work.pos[0] = (begin + 1) * K
    fill(work.counts, 0, tiles, K)
    combine(P, work.off, work.weights, 1, 1, work.counts, length, alpha, work.pos)
    if grad_attention.size == 0:
        return
    for b in range(K):
        _add_by_step(grad_attention[b], begin + 1, t - begin, K, P, work.off[b], G, alpha)


@kernel_loop
def _add_by_step(grads, first, count, K, P, place, G, alpha):
    """For i < count, x = grads[first + i]: G[place + i * K + a] += x, alpha[(first + i) * K + a] += P x."""
    for i in range(count):
        x = grads[first + i]
        for a in range(K):
            G[place + i * K + a] += x
        for a in range(K):
            alpha[(first + i) * K + a] += P[place + i * K + a] * x


@kernel
def weights_again(shape, past, t, push, replace, pop, work):
    """WU, WR, CP, E and A of step t, from what the forward pass left. Returns the room of A."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    room = pop_weights(shape, past, t, pop, work)
    find_kept(shape, past, t, work, room)
    wpush, wreplace, epop = work.wpush, work.wreplace, work.epop
    before, total = past.log_alpha[t - 1], past.log_total[t]
    for b in range(K):  # a pop that uncovers nothing is no part of the total, and may exceed it by far
        alive = total[b] > -math.inf
        epop[b] = work.best_pop[b // S] - total[b] if alive and work.uncovered[b] > 0 else -math.inf
        work.tops[b] = total[b] if alive else math.inf
    for d in range(K):
        row, up, held = d * K, before[d], before[d] if work.kept[d] > 0 else -math.inf
        for b in range(K):
            wpush[row + b] = up + push[row + b] - work.tops[b]
            wreplace[row + b] = held + replace[row + b] - work.tops[b]
    exp_each(work.joint)
    return room


@kernel
def _against_previous(shape, past, t, Y, many, res, work):
    """res[d * many + r] = sum over i < t-1 of P_{t-1}[i, a | d] Y[work.pos[r] + (i, a)]."""
    K = shape.states * shape.symbols
    low = first_of(shape, t)
    place = shape.start[t - 1] + (low - first_of(shape, t - 1)) * K
    groups = (K + 3) // 4
    for g in range(groups):
        work.counts[g] = (t - 1 - low) * K
        for c in range(4):
            work.off[4 * g + c] = place + (4 * g + c if 4 * g + c < K else K - 1) * shape.stride[t - 1]
    dots(past.chart, work.off, work.counts, groups, Y, work.pos, many, work.products)
    for d in range(K):
        for r in range(many):
            res[d * many + r] = work.products[4 * (d // 4 * many + r) + d % 4]


@kernel
def uncovered(shape, past, adjoint, later, t, work, room):
    """B of step t into `later.back`."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    low, lowest = first_of(shape, t), lowest_of(shape, t)
    count = t - 1 - lowest if t - 1 > lowest else 0
    groups = (count + 3) // 4
    wide = later.back.shape[0] // Q
    places, X = work.places, past.chart[moved(shape, t) :]
    fill(later.back, 0, later.back.size, 0)
    for g in range(groups):
        last = lowest + 4 * g + 3
        work.counts[g] = ((last if last < t - 2 else t - 2) - low) * K
    paired = Q == 2
    for y in range(S):
        for r in range(Q):
            work.pos[r] = shape.start[t] + (r * S + y) * shape.stride[t]
        if paired:
            one, two = places.each[y * places.size + lowest :], places.each[(S + y) * places.size + lowest :]
            dots_of_pairs(X, one, two, work.counts, groups, adjoint.chart, work.pos, work.products)
        for u in range(Q):
            b = u * S + y
            if not paired:
                each = places.each[b * places.size + lowest :]
                dots(X, each, work.counts, groups, adjoint.chart, work.pos, Q, work.products)
            for r in range(Q):
                place = (lowest - low) * K + b
                target, source = r * wide + 32 + place, r * room + place
                scale = work.epop[r * S + y]
                apart, first = (16, 8 * u + 4 * r) if paired else (4 * Q, 4 * r)
                _put_sums(
                    work.products, apart, first, count, scale, work.popped, source, later.back, target, K
                )


@kernel_loop
def _put_sums(products, apart, first, count, scale, popped, source, out, place, step):
    """out[place + k * step] = scale * sum k, for k < count; of the sums that `dots` has left.

    Sums come in groups of four, which begin at `first` and are `apart`. Where popped[source + k * step] is 0,
    so is `out`.
    """
    for k in range(count):
        total = scale * products[(k >> 2) * apart + first + (k & 3)]
        out[place + k * step] = total if popped[source + k * step] != 0 else 0


@kernel
def backward_step(
    shape, past, adjoint, later, t, push, replace, pop, grad_alpha, grad_attention, grads, work
):
    """Step t of the gradient.

    Args:
        grads: where to write dpush [K * K], dreplace [K * K] and dpop [K * Q].
    """
    Q, S = shape.states, shape.symbols
    K = Q * S
    dpush, dreplace, dpop = grads
    if t < later.end:
        gather(shape, adjoint, later, t, work)
    spread_reading(shape, past, adjoint, t, grad_alpha, grad_attention, work)
    room = weights_again(shape, past, t, push, replace, pop, work)
    for b in range(K):
        work.pos[b] = shape.start[t] + b * shape.stride[t]
        place = work.pos[b] + (t - 1 - first_of(shape, t)) * K
        for a in range(K):
            dpush[a * K + b] = adjoint.chart[place + a] * work.wpush[a * K + b]
    _against_previous(shape, past, t, adjoint.chart, K, dreplace, work)
    for j in range(K * K):
        dreplace[j] *= work.wreplace[j]
    uncovered(shape, past, adjoint, later, t, work, room)
    low, wide = first_of(shape, t), later.back.shape[0] // Q
    scale_pops(shape, t, work, room, (t - 1 - low) * K, later.used, use_of(shape, later, t, low), wide)
    for r in range(Q):
        work.pos[r] = r * wide + 32
    _against_previous(shape, past, t, later.back, Q, dpop, work)
    for j in range(K * Q):
        dpop[j] *= work.wpop[j]
    if later.older:
        scatter(shape, adjoint, later, t, work, room)
    copy(work.wreplace, later.wreplace)
    copy(work.wpop, later.wpop)
