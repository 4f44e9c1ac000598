# mypy: allow-untyped-defs, allow-untyped-calls
"""Lang's recurrence for one sequence in log space as compiled loops that keep gamma, alpha and posteriors.

The kernels that networks run (`ndstack.ops`) keep only what a reading needs. To decompose runs, every inner
weight is needed, including those of very improbable runs, and also with maxima in place of sums. Row i + 1 of
a chart is time i, as in `ndstack.ops.nondeterministic.reference`; a configuration type (q, x) is the number
q S + x.

The cubic part sums products of conditional probabilities, share = alpha[i,a] gamma[i,a -> t,b] / alpha[t,b].
A sum that is so small that a term may have underflowed is computed again in log space.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler

SMALLEST = 1e-250  # a smaller sum may have lost terms to underflow
LARGEST = 1e40
NOTHING = -np.inf


@compiler()
def _log_add(values):
    """Return the log of the sum of exponentials."""
    top = values.max()
    if top == NOTHING:
        return NOTHING
    total = 0.0
    for value in values:
        if value > top - 45.0:
            total += np.exp(value - top)
    return top + np.log(total)


@compiler()
def _popped(gamma, pop, t, low, best):
    """Return gamma'[k, c -> t, r] for the rows k + 1 above `low`, [n+1, K, Q]."""
    K, Q = pop.shape[1:]
    found = np.full((gamma.shape[0], K, Q), NOTHING)
    terms = np.empty(K)
    for row in range(low + 1, t):
        for c in range(K):
            for r in range(Q):
                for d in range(K):
                    terms[d] = gamma[row, t - 1, c, d] + pop[t - 1, d, r]
                found[row, c, r] = terms.max() if best else _log_add(terms)
    return found


@compiler()
def _pop_term(gamma, popped, row, t, a, r, y, S, best):
    """Return the pop term of gamma[i, a -> t, (r, y)], in log space."""
    K = gamma.shape[2]
    top = NOTHING
    for k in range(row, t - 1):
        for c in range(y, K, S):
            top = max(top, gamma[row, k, a, c] + popped[k + 1, c, r])
    if best or top == NOTHING:
        return top
    total = 0.0
    for k in range(row, t - 1):
        for c in range(y, K, S):
            term = gamma[row, k, a, c] + popped[k + 1, c, r] - top
            if term > -45.0:
                total += np.exp(term)
    return top + np.log(total)


@compiler()
def _scaled(popped, alpha, low, t, Q, S):
    """Return alpha[k, c] gamma'[k, c -> t, r] as scaled numbers, [k, Q, K], and the log scales, [Q, S]."""
    K = Q * S
    scale = np.full((Q, S), NOTHING)
    for k in range(low, t - 1):
        for r in range(Q):
            for c in range(K):
                scale[r, c % S] = max(scale[r, c % S], alpha[k + 1, c] + popped[k + 1, c, r])
    numbers = np.zeros((max(t - 1, 0), Q, K))
    for k in range(low, t - 1):
        for r in range(Q):
            for c in range(K):
                if scale[r, c % S] > NOTHING:
                    numbers[k, r, c] = np.exp(alpha[k + 1, c] + popped[k + 1, c, r] - scale[r, c % S])
    return numbers, scale


@compiler()
def inner_and_forward_weights(push, replace, pop, Q, S, window, first, best):
    """Return gamma [n+1, n+1, K, K], alpha [n+2, K] and the shares.

    The log weights are push [n, K, K], replace [n, K, K] and pop [n, K, Q]. `first` is 0 if the initial
    bottom was pushed at time -1, which is row 0, and else 1.
    """
    n, K = push.shape[0], Q * S
    gamma = np.full((n + 1, n + 1, K, K), NOTHING)
    share = np.zeros((0 if best else n + 1, n + 1, K, K))
    alpha = np.full((n + 2, K), NOTHING)
    alpha[1, 0] = 0.0
    if first == 0:
        alpha[0, 0] = gamma[0, 0, 0, 0] = 0.0
        if not best:
            share[0, 0, 0, 0] = 1.0
    terms = np.empty(K)
    for t in range(1, n + 1):
        low = max(first, t - window + 1)
        popped = _popped(gamma, pop, t, low, best)
        if not best:
            numbers, scale = _scaled(popped, alpha, low, t, Q, S)
        gamma[t, t] = push[t - 1]
        for row in range(low, t):
            for a in range(K):
                if alpha[row, a] == NOTHING:
                    continue
                sums = np.zeros((Q, K))
                if not best:
                    for k in range(row, t - 1):
                        for r in range(Q):
                            for c in range(K):
                                sums[r, c] += share[row, k, a, c] * numbers[k, r, c]
                for b in range(K):
                    r, y = b // S, b % S
                    for d in range(K):
                        terms[d] = gamma[row, t - 1, a, d] + replace[t - 1, d, b]
                    total = 0.0
                    for c in range(y, K, S):
                        total += sums[r, c]
                    if total > SMALLEST:
                        pops = np.log(total) + scale[r, y] - alpha[row, a]
                    else:
                        pops = _pop_term(gamma, popped, row, t, a, r, y, S, best)
                    kept = terms.max() if best else _log_add(terms)
                    high, little = max(kept, pops), min(kept, pops)
                    if not best and little > NOTHING:
                        high += np.log1p(np.exp(little - high))
                    gamma[row, t, a, b] = high
        _forward(gamma, alpha, share, t, low, best)
    return gamma, alpha, share


@compiler()
def _forward(gamma, alpha, share, t, low, best):
    """Compute alpha[t] and the shares of column t in place."""
    K = alpha.shape[1]
    terms = np.empty((t + 1 - low) * K)
    for b in range(K):
        for row in range(low, t + 1):
            for a in range(K):
                terms[(row - low) * K + a] = alpha[row, a] + gamma[row, t, a, b]
        alpha[t + 1, b] = terms.max() if best else _log_add(terms)
        if not best and alpha[t + 1, b] > NOTHING:
            for row in range(low, t + 1):
                for a in range(K):
                    share[row, t, a, b] = np.exp(terms[(row - low) * K + a] - alpha[t + 1, b])


@compiler()
def transition_posteriors(replace, pop, Q, S, window, first, gamma, alpha, share, end):
    """Return the posterior of push, replace and pop at every step, given that of the types at the end.

    `used[i+1, t, a, b]` is the probability that a run contains a push computation from (i, a) to (t, b), and
    `reached[t+1, b]` that its last stack has an element whose push computation ends at (t, b). Each of these
    probabilities is distributed among the terms of its item.
    """
    n, K = replace.shape[0], Q * S
    used = np.zeros((n + 1, n + 1, K, K))
    reached = np.zeros((n + 2, K))
    reached[n + 1] = end
    pushes, replaces, pops = np.zeros((n, K, K)), np.zeros((n, K, K)), np.zeros((n, K, Q))
    for t in range(n, 0, -1):
        low = max(first, t - window + 1)
        for row in range(low, t + 1):
            for a in range(K):
                for b in range(K):
                    part = reached[t + 1, b] * share[row, t, a, b]
                    used[row, t, a, b] += part
                    reached[row, a] += part
        pushes[t - 1] = used[t, t]
        popped = _popped(gamma, pop, t, low, False)
        entered = _share_out(replace, S, gamma, alpha, share, used, popped, replaces, t, low)
        for row in range(low + 1, t):
            for c in range(K):
                for r in range(Q):
                    if entered[row, c, r] == 0.0:
                        continue
                    for d in range(K):
                        log = gamma[row, t - 1, c, d] + pop[t - 1, d, r] - popped[row, c, r]
                        part = entered[row, c, r] * np.exp(log)
                        pops[t - 1, d, r] += part
                        used[row, t - 1, c, d] += part
    return pushes, replaces, pops


@compiler()
def _share_out(replace, S, gamma, alpha, share, used, popped, replaces, t, low):
    """Distribute column t except its pushes; return what pops from (k, c) to state r receive, [n+1, K, Q]."""
    K, Q = popped.shape[1:]
    entered = np.zeros(popped.shape)
    numbers, scale = _scaled(popped, alpha, low, t, Q, S)
    received = np.zeros(numbers.shape)  # [k, Q, K]
    factor = np.zeros((Q, K))
    for row in range(low, t):
        for a in range(K):
            factor[:] = 0.0
            for b in range(K):
                mass = used[row, t, a, b]
                if mass < 1e-300:
                    continue
                r, y, whole = b // S, b % S, gamma[row, t, a, b]
                for d in range(K):
                    part = mass * np.exp(gamma[row, t - 1, a, d] + replace[t - 1, d, b] - whole)
                    replaces[t - 1, d, b] += part
                    used[row, t - 1, a, d] += part
                ratio = mass * np.exp(scale[r, y] - alpha[t + 1, b]) / max(share[row, t, a, b], SMALLEST)
                if share[row, t, a, b] < SMALLEST or ratio > LARGEST:
                    for k in range(row, t - 1):
                        for c in range(y, K, S):
                            part = mass * np.exp(gamma[row, k, a, c] + popped[k + 1, c, r] - whole)
                            used[row, k, a, c] += part
                            entered[k + 1, c, r] += part
                else:
                    factor[r, y::S] = ratio
            for k in range(row, t - 1):
                for r in range(Q):
                    for c in range(K):
                        part = factor[r, c] * share[row, k, a, c] * numbers[k, r, c]
                        used[row, k, a, c] += part
                        received[k, r, c] += part
    for k in range(low, t - 1):
        entered[k + 1] += received[k].T
    return entered
