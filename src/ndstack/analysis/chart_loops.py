# mypy: allow-untyped-defs, allow-untyped-calls
"""Lang's recurrence for one sequence in log space as compiled loops that keep gamma, alpha and posteriors.

The kernels that networks run (`ndstack.ops`) keep only what a reading needs. To decompose runs, every inner
weight is needed, including those of very improbable runs, and also with maxima in place of sums. Row i + 1 of
a chart is time i, as in `ndstack.ops.nondeterministic.reference`; a configuration type (q, x) is the number
q S + x.

The cubic part sums products of conditional probabilities, share = alpha[i,a] gamma[i,a -> t,b] / alpha[t,b].
A sum that is so small that a term may have underflowed is computed again in log space. The sums, and the
maxima of the Viterbi semiring, run over the times k; their operands are kept with k as the last dimension
("turned"), so that these loops become vector instructions. In the charts of compiled grammars almost all
entries are zero, so for each operand the span of times is kept outside of which it is zero.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler

SMALLEST = 1e-250  # a smaller sum may have lost terms to underflow
LARGEST = 1e40
THIN = -340.0  # the log of a number whose product with another such number does not underflow
NOTHING = -np.inf
FAST = {"contract", "reassoc", "nsz", "arcp", "nnan"}  # infinities stay; there is no nan


@compiler(fastmath=FAST)
def _dot(left, right, start, end):
    """Return the sum of products from one time to another."""
    total = 0.0
    for k in range(start, end):
        total += left[k] * right[k]
    return total


@compiler(fastmath=FAST)
def _greatest(left, right, start, end):
    """Return the greatest sum of two log weights from one time to another."""
    top = NOTHING
    for k in range(start, end):
        value = left[k] + right[k]
        top = value if value > top else top
    return top


@compiler(fastmath=FAST)
def _add_products(used, received, left, right, factor, start, end):
    """Add factor * left * right to `used`, and factor * left to `received`, from one time to another."""
    for k in range(start, end):
        part = factor * left[k]
        received[k] += part
        used[k] += part * right[k]


@compiler()
def _all_zero(logs):
    """Return whether all of these logs are -inf."""
    for log in logs:  # noqa: SIM110, as numba knows no generators inside `all`
        if log > NOTHING:
            return False
    return True


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
            if _all_zero(gamma[row, t - 1, c]):
                continue
            for r in range(Q):
                for d in range(K):
                    terms[d] = gamma[row, t - 1, c, d] + pop[t - 1, d, r]
                found[row, c, r] = terms.max() if best else _log_add(terms)
    return found


@compiler()
def _pop_term(gamma, popped, row, t, a, r, y, S):
    """Return the log of the sum of the pop terms of gamma[i, a -> t, (r, y)], computed in log space."""
    K = gamma.shape[2]
    top = NOTHING
    for k in range(row, t - 1):
        for c in range(y, K, S):
            top = max(top, gamma[row, k, a, c] + popped[k + 1, c, r])
    if top == NOTHING:
        return top
    total = 0.0
    for k in range(row, t - 1):
        for c in range(y, K, S):
            term = gamma[row, k, a, c] + popped[k + 1, c, r] - top
            if term > -45.0:
                total += np.exp(term)
    return top + np.log(total)


@compiler()
def _turned(popped, low, t):
    """Return gamma'[k, c -> t, r] with k as the last dimension, [Q, K, k]."""
    K, Q = popped.shape[1:]
    found = np.full((Q, K, max(t - 1, 0)), NOTHING)
    for k in range(low, t - 1):
        for c in range(K):
            for r in range(Q):
                found[r, c, k] = popped[k + 1, c, r]
    return found


@compiler()
def _scaled(popped, alpha, low, t, Q, S):
    """Return alpha[k, c] gamma'[k, c -> t, r] as scaled numbers, [Q, K, k], and the log scales, [Q, S].

    The third result says for which of the scales some number is thin.
    """
    K = Q * S
    scale, thin = np.full((Q, S), NOTHING), np.zeros((Q, S), np.bool_)
    for k in range(low, t - 1):
        for r in range(Q):
            for c in range(K):
                scale[r, c % S] = max(scale[r, c % S], alpha[k + 1, c] + popped[k + 1, c, r])
    numbers = np.zeros((Q, K, max(t - 1, 0)))
    for k in range(low, t - 1):
        for r in range(Q):
            for c in range(K):
                log = alpha[k + 1, c] + popped[k + 1, c, r] - scale[r, c % S]
                if log > NOTHING:
                    numbers[r, c, k] = np.exp(log)
                    thin[r, c % S] |= log < THIN
    return numbers, scale, thin


@compiler()
def _spans(across, zero):
    """Return the first time k at which each of these is not zero, and the time after the last, [Q, K, 2]."""
    Q, K, end = across.shape
    found = np.zeros((Q, K, 2), np.int64)
    for r in range(Q):
        for c in range(K):
            first = 0
            while first < end and across[r, c, first] == zero:
                first += 1
            last = end
            while last > first and across[r, c, last - 1] == zero:
                last -= 1
            found[r, c] = first, last
    return found


@compiler()
def _pops(turned, across, spans, spans_across, row, a, r, y, S, best):
    """Return the sum of the pop terms of gamma[i, a -> t, (r, y)], or with `best` their maximum."""
    total = NOTHING if best else 0.0
    for c in range(y, turned.shape[2], S):
        start = max(spans[row, a, c, 0], spans_across[r, c, 0])
        end = min(spans[row, a, c, 1], spans_across[r, c, 1])
        if start >= end:
            continue
        if best:
            total = max(total, _greatest(turned[row, a, c], across[r, c], start, end))
        else:
            total += _dot(turned[row, a, c], across[r, c], start, end)
    return total


@compiler(nogil=True)
def inner_and_forward_weights(push, replace, pop, Q, S, window, first, best):
    """Return gamma [n+1, n+1, K, K], alpha [n+2, K] and the shares.

    The log weights are push [n, K, K], replace [n, K, K] and pop [n, K, Q]. `first` is 0 if the initial
    bottom was pushed at time -1, which is row 0, and else 1.
    """
    n, K = push.shape[0], Q * S
    gamma = np.full((n + 1, n + 1, K, K), NOTHING)
    share = np.zeros((0 if best else n + 1, n + 1, K, K))
    turned = np.full((n + 1, K, K, n + 1), NOTHING if best else 0.0)  # gamma or share, [row, a, c, k]
    spans = np.zeros((n + 1, K, K, 2), np.int64)
    thin_rows, live_rows = np.zeros((n + 1, K), np.bool_), np.zeros((n + 1, K), np.bool_)
    alpha = np.full((n + 2, K), NOTHING)
    alpha[1, 0] = 0.0
    if first == 0:
        alpha[0, 0] = gamma[0, 0, 0, 0] = 0.0
        turned[0, 0, 0, 0] = 0.0 if best else 1.0
        live_rows[0, 0], spans[0, 0, 0, 1] = True, 1
        if not best:
            share[0, 0, 0, 0] = 1.0
    terms = np.empty(K)
    scale, thin = np.full((Q, S), NOTHING), np.zeros((Q, S), np.bool_)
    for t in range(1, n + 1):
        low = max(first, t - window + 1)
        popped = _popped(gamma, pop, t, low, best)
        if best:
            across = _turned(popped, low, t)
        else:
            across, scale, thin = _scaled(popped, alpha, low, t, Q, S)
        spans_across = _spans(across, NOTHING if best else 0.0)
        gamma[t, t] = push[t - 1]
        for row in range(low, t):
            for a in range(K):
                ended = _all_zero(gamma[row, t - 1, a])
                if alpha[row, a] == NOTHING or (ended and not live_rows[row, a] and not thin_rows[row, a]):
                    continue
                for b in range(K):
                    r, y = b // S, b % S
                    for d in range(K):
                        terms[d] = gamma[row, t - 1, a, d] + replace[t - 1, d, b]
                    pops = _pops(turned, across, spans, spans_across, row, a, r, y, S, best)
                    if not best:
                        if pops > SMALLEST:
                            pops = np.log(pops) + scale[r, y] - alpha[row, a]
                        elif pops > 0.0 or thin_rows[row, a] or thin[r, y]:
                            pops = _pop_term(gamma, popped, row, t, a, r, y, S)
                        else:
                            pops = NOTHING
                    kept = NOTHING if ended else terms.max() if best else _log_add(terms)
                    high, little = max(kept, pops), min(kept, pops)
                    if not best and little > NOTHING:
                        high += np.log1p(np.exp(little - high))
                    gamma[row, t, a, b] = high
        _forward(gamma, alpha, share, turned, thin_rows, t, low, best)
        _mark(turned, spans, live_rows, t, low, NOTHING if best else 0.0)
    return gamma, alpha, share


@compiler()
def _forward(gamma, alpha, share, turned, thin_rows, t, low, best):
    """Compute alpha[t] and the shares of column t in place, and what is turned."""
    K = alpha.shape[1]
    terms = np.empty((t + 1 - low) * K)
    for b in range(K):
        for row in range(low, t + 1):
            for a in range(K):
                terms[(row - low) * K + a] = alpha[row, a] + gamma[row, t, a, b]
                if best:
                    turned[row, a, b, t] = gamma[row, t, a, b]
        alpha[t + 1, b] = terms.max() if best else _log_add(terms)
        if not best and alpha[t + 1, b] > NOTHING:
            for row in range(low, t + 1):
                for a in range(K):
                    log = terms[(row - low) * K + a] - alpha[t + 1, b]
                    if log > NOTHING:
                        share[row, t, a, b] = turned[row, a, b, t] = np.exp(log)
                        thin_rows[row, a] |= log < THIN


@compiler()
def _mark(turned, spans, live_rows, t, low, zero):
    """Extend the spans of what is not zero at time t, in place."""
    K = live_rows.shape[1]
    for row in range(low, t + 1):
        for a in range(K):
            for b in range(K):
                if turned[row, a, b, t] != zero:
                    if spans[row, a, b, 1] == 0:
                        spans[row, a, b, 0] = t
                    spans[row, a, b, 1] = t + 1
                    live_rows[row, a] = True


@compiler(nogil=True)
def transition_posteriors(replace, pop, Q, S, window, first, gamma, alpha, share, end):
    """Return the posterior of push, replace and pop at every step, given that of the types at the end.

    `used[i+1, a, b, t]` is the probability that a run contains a push computation from (i, a) to (t, b), and
    `reached[t+1, b]` that its last stack has an element whose push computation ends at (t, b). Each of these
    probabilities is distributed among the terms of its item.
    """
    n, K = replace.shape[0], Q * S
    turned = share.transpose(0, 2, 3, 1).copy()
    used = np.zeros((n + 1, K, K, n + 1))
    reached = np.zeros((n + 2, K))
    reached[n + 1] = end
    pushes, replaces, pops = np.zeros((n, K, K)), np.zeros((n, K, K)), np.zeros((n, K, Q))
    for t in range(n, 0, -1):
        low = max(first, t - window + 1)
        for row in range(low, t + 1):
            for a in range(K):
                for b in range(K):
                    part = reached[t + 1, b] * share[row, t, a, b]
                    used[row, a, b, t] += part
                    reached[row, a] += part
        pushes[t - 1] = used[t, :, :, t]
        popped = _popped(gamma, pop, t, low, False)
        entered = _share_out(replace, S, gamma, alpha, turned, used, popped, replaces, t, low)
        for row in range(low + 1, t):
            for c in range(K):
                for r in range(Q):
                    if entered[row, c, r] == 0.0:
                        continue
                    for d in range(K):
                        log = gamma[row, t - 1, c, d] + pop[t - 1, d, r] - popped[row, c, r]
                        part = entered[row, c, r] * np.exp(log)
                        pops[t - 1, d, r] += part
                        used[row, c, d, t - 1] += part
    return pushes, replaces, pops


@compiler()
def _share_out(replace, S, gamma, alpha, turned, used, popped, replaces, t, low):
    """Distribute column t except its pushes; return what pops from (k, c) to state r receive, [n+1, K, Q]."""
    K, Q = popped.shape[1:]
    entered = np.zeros(popped.shape)
    numbers, scale, _ = _scaled(popped, alpha, low, t, Q, S)
    received = np.zeros(numbers.shape)  # [Q, K, k], to be multiplied by the numbers
    for row in range(low, t):
        for a in range(K):
            for b in range(K):
                mass = used[row, a, b, t]
                if mass < 1e-300:
                    continue
                r, y, whole = b // S, b % S, gamma[row, t, a, b]
                for d in range(K):
                    part = mass * np.exp(gamma[row, t - 1, a, d] + replace[t - 1, d, b] - whole)
                    replaces[t - 1, d, b] += part
                    used[row, a, d, t - 1] += part
                here = turned[row, a, b, t]
                ratio = mass * np.exp(scale[r, y] - alpha[t + 1, b]) / max(here, SMALLEST)
                thin = here < SMALLEST or ratio > LARGEST
                for c in range(y, K, S):
                    if thin:
                        for k in range(row, t - 1):
                            part = mass * np.exp(gamma[row, k, a, c] + popped[k + 1, c, r] - whole)
                            used[row, a, c, k] += part
                            entered[k + 1, c, r] += part
                    else:
                        _add_products(
                            used[row, a, c],
                            received[r, c],
                            turned[row, a, c],
                            numbers[r, c],
                            ratio,
                            row,
                            t - 1,
                        )
    for k in range(low, t - 1):
        for c in range(K):
            for r in range(Q):
                entered[k + 1, c, r] += received[r, c, k] * numbers[r, c, k]
    return entered
