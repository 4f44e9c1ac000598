"""Compiled walks over the stack WFA, from the top of a stack down.

`share[i + 1, t, a, b]` is the probability, given the configuration type (t, b), that the top symbol stands on
(i, a), as in `ndstack.analysis.chart`; row 0 is time -1.
"""

import numba
import numpy as np

NEGLIGIBLE = 1e-15  # of the probability that is shared out


@numba.njit(cache=True)
def on_path(share, ends, t, least):  # type: ignore[no-untyped-def]
    """Which nodes and edges the stack at time t has.

    Returns the probability of each node, [t + 2, K], the edges [number, 4] as (row, time, a, b) whose
    probability is above `least`, by time, and their probabilities.
    """
    K = share.shape[3]
    reached = np.zeros((t + 2, K))
    reached[t + 1] = ends
    places, sizes = [(0, 0, 0, 0)], [0.0]
    for time in range(t, -1, -1):
        for b in range(K):
            here = reached[time + 1, b]
            if here == 0.0:
                continue
            for row in range(time + 1):
                for a in range(K):
                    p = share[row, time, a, b] * here
                    if p > 0.0:
                        reached[row, a] += p
                        if p > least:
                            places.append((row, time, a, b))
                            sizes.append(p)
    return reached, np.array(places)[1:], np.array(sizes)[1:]


@numba.njit(cache=True)
def _below(share, under, rows, K):  # type: ignore[no-untyped-def]
    """The probability of what the nodes `under` [rows * K] stand on, [(rows + 1) * K], and the work done."""
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
        work += (time + 1) * K * some
        for row in range(time + 1):
            for a in range(K):
                total = 0.0
                for one in range(some):
                    total += share[row, time, a, kinds[one]] * masses[one]
                standing[row, a] += total
    return standing, work


@numba.njit(cache=True)
def search_stacks(share, ends, t, S, bottom_fix, k, limit):  # type: ignore[no-untyped-def]
    """Best-first search for the k most probable stacks at time t, opened from the top.

    Returns for each upper part of a stack its probability, the upper part it goes on from (-1 if none), its last
    symbol and what it is: 0 open, 1 opened, 2 a whole stack, 3 a whole stack that is among the results; for the
    first K parts, the number is the configuration type. Ends when k stacks are found or `limit` multiplications
    are done.
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
        standing, work = _below(share, under[best], rows, K)
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
