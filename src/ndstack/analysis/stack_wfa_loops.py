# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled searches of the stack WFA, from the top of a stack down.

`share[i + 1, t, a, b]` is the probability, given the configuration type (t, b), that (i, a) is below the top
symbol, as in `ndstack.analysis.derivation_chart`; row 0 is time -1. `live[t, i + 1, a]` says whether this is
greater than 0 for some b. In the charts of compiled grammars it seldom is, and the rest is skipped.
"""

import numpy as np

from ndstack.analysis.chart_loops import FAST
from ndstack.ops.runtime.compiling import compiler

NEGLIGIBLE = 1e-15  # a smaller fraction of the probability is ignored


@compiler(nogil=True)
def find_live(share):
    """Return where a share is greater than 0, [n+1, n+1, K]."""
    rows, times, K = share.shape[:3]
    live = np.zeros((times, rows, K), np.bool_)
    for row in range(rows):
        for time in range(row, times):
            for a in range(K):
                for b in range(K):
                    if share[row, time, a, b] > 0.0:
                        live[time, row, a] = True
                        break
    return live


@compiler(nogil=True)
def best_below(share, t, bottom_fix):
    """Return the probability of the best path from the bottom to each node, given that node, [t + 2, K]."""
    K = share.shape[3]
    best = np.zeros((t + 2, K))
    best[0, 0] = 1.0
    if not bottom_fix:
        best[1, 0] = 1.0
    for time in range(t + 1):
        for row in range(time + 1):
            for a in range(K):
                for b in range(K):
                    best[time + 1, b] = max(best[time + 1, b], share[row, time, a, b] * best[row, a])
    return best


@compiler(fastmath=FAST)
def _summed(shares, masses, scores):
    """Return the sum of the shares times masses, and the greatest share times score."""
    total = best = 0.0
    for b in range(len(shares)):
        total += shares[b] * masses[b]
        step = shares[b] * scores[b]
        best = step if step > best else best
    return total, best


@compiler(nogil=True)
def on_path(share, live, below, ends, t, least, most):
    """Return the marginal probabilities of nodes and edges at time t; `below` is from `best_below`.

    The results are the probability of each node, [t + 2, K]; the edges whose probability is greater than
    `least`, as (row, time, a, b), [number, 4]; and their probabilities. If there are more than `most`, the
    edges on the best paths are kept: the score of an edge is the probability of the best path through it, and
    all edges of that path have at least the same score. `most` is -1 for all edges.
    """
    K, number, enough = share.shape[3], 0, -1.0
    reached, above = np.zeros((t + 2, K)), np.zeros((t + 2, K))
    reached[t + 1] = above[t + 1] = ends
    room = 8 * (most + 1) if most >= 0 else (t + 1) * (t + 2) // 2 * K * K
    places, sizes, scores = np.empty((room, 4), np.int32), np.empty(room), np.empty(room)
    for time in range(t, -1, -1):
        masses, scores_above = reached[time + 1], above[time + 1]
        if masses.max() <= 0.0:
            continue
        for row in range(time + 1):
            for a in range(K):
                if not live[time, row, a]:
                    continue
                under = below[row, a]
                total, best = _summed(share[row, time, a], masses, scores_above)
                reached[row, a] += total
                above[row, a] = max(above[row, a], best)
                if best * under <= enough or total <= least:
                    continue
                for b in range(K):
                    size = share[row, time, a, b] * masses[b]
                    step = share[row, time, a, b] * scores_above[b]
                    if step * under > enough and size > least:
                        if number == len(scores):  # keep the best most + 1 and what equals the last
                            enough = np.partition(scores, number - most - 1)[number - most - 1] * (1 - 1e-9)
                            places, sizes, scores, number = _keep(places, sizes, scores, enough)
                        places[number] = row, time, a, b
                        sizes[number], scores[number] = size, step * under
                        number += 1
    places, sizes, scores = places[:number], sizes[:number], scores[:number]
    if 0 <= most < number:
        cut = np.partition(scores, number - most - 1)[number - most - 1]
        # The tolerance for rounding keeps paths whole; the best path is always kept.
        kept = scores > min(cut * (1 + 1e-9), scores.max() * (1 - 1e-9))
        places, sizes = places[kept], sizes[kept]
    return reached, places, sizes


@compiler()
def _keep(places, sizes, scores, enough):
    """Return the entries with scores above `enough`, in arrays with room for more, and their number."""
    kept = scores > enough
    number = kept.sum()
    room = max(2 * number, len(scores))
    new_places, new_sizes, new_scores = np.empty((room, 4), np.int32), np.empty(room), np.empty(room)
    new_places[:number], new_sizes[:number], new_scores[:number] = places[kept], sizes[kept], scores[kept]
    return new_places, new_sizes, new_scores, number


@compiler()
def _below(share, live, under, rows, K):
    """Return the probability of the nodes below `under` [rows * K], [(rows + 1) * K], and the work done."""
    standing = np.zeros((rows + 1, K))
    least = NEGLIGIBLE * under.sum()
    work = rows * K
    kinds, masses = np.empty(K, np.int64), np.empty(K)
    for time in range(rows):
        some = 0
        for b in range(K):
            if under[time * K + b] > least:
                kinds[some], masses[some] = b, under[time * K + b]
                some += 1
        if some == 0:
            continue
        work += (time + 1) * K // 8  # to see what is skipped
        for row in range(time + 1):
            for a in range(K):
                if not live[time, row, a]:
                    continue
                work += some
                total = 0.0
                for one in range(some):
                    total += share[row, time, a, kinds[one]] * masses[one]
                standing[row, a] += total
    return standing, work


@compiler(nogil=True)
def search_stacks(share, live, ends, t, S, bottom_fix, k, limit):
    """Find the k most probable stacks at time t by best-first search, from the top down.

    The results are, for each upper part of a stack, its probability, the upper part that it extends (-1 if
    none), its last symbol (-1 if it ends there) and its kind: 0 open, 1 extended, 2 a whole stack, 3 a whole
    stack that is among the results. The first K parts are the configuration types. The search ends when k
    stacks are found or `limit` multiplications are done.
    """
    K, rows, size = share.shape[3], t + 1, 256
    mass, parent = np.zeros(size), np.full(size, -1)
    symbol, kind = np.zeros(size, np.int64), np.ones(size, np.int64)
    under = np.zeros((size, rows * K))
    count = K
    for b in range(K):
        mass[b], symbol[b], under[b, t * K + b] = ends[b], b % S, ends[b]
        if ends[b] > 0.0:
            kind[b] = 0
    found = 0
    while found < k and limit > 0:
        best = -1
        for one in range(count):
            if kind[one] % 2 == 0 and (best < 0 or mass[one] > mass[best]):
                best = one
        if best < 0:
            break
        kind[best] += 1
        if kind[best] == 3:
            found += 1
            continue
        standing, work = _below(share, live, under[best], rows, K)
        limit -= work
        if count + S + 1 > len(mass):
            size = len(mass)
            mass, symbol = np.append(mass, np.zeros(size)), np.append(symbol, np.zeros(size, np.int64))
            parent, kind = np.append(parent, np.full(size, -1)), np.append(kind, np.ones(size, np.int64))
            under = np.concatenate((under, np.zeros((size, rows * K))))
        whole = standing[0, 0] if bottom_fix else under[best, 0]
        if whole > 0.0:
            mass[count], parent[count], kind[count], symbol[count] = whole, best, 2, -1
            count += 1
        for x in range(S):
            total = 0.0
            for row in range(1, rows + 1):
                for a in range(x, K, S):
                    under[count, (row - 1) * K + a] = standing[row, a]
                    total += standing[row, a]
            if total > 0.0:
                mass[count], parent[count], kind[count], symbol[count] = total, best, 0, x
                count += 1
    return mass[:count], parent[:count], symbol[:count], kind[:count]
