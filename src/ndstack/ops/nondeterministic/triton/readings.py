# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""What an LSTM reads from its nondeterministic stack, and weights that are normalised: parts of `fused`.

Without vectors a reading is p_t[b]; with vectors v it is, for every b (see `cpu.reading`),

    r_b = p_t[b] sum_{i, a} P_t[i, a | b] v_{i+1}.

Where readings do not tell the state, those of all states are added up. A position of a column stands for
i + 1, so that it is the number of its vector, too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.nondeterministic.triton.strips import matmul

NEG: tl.constexpr = tl.constexpr(float("-inf"))


@triton.jit
def exp_from(x, shift):
    """e^{x - shift}, 0 where shift is -inf."""
    dead = shift == NEG
    return tl.where(dead, 0.0, tl.exp(x - tl.where(dead, 0.0, shift)))


@triton.jit
def columns_at(chart, time, symbol, row, j, inside, Q: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """The columns of a time at the places j, [KP, J]."""
    d = tl.arange(0, KP)
    place = (d // Q) * symbol + (time * Q + d % Q) * row
    return tl.load(chart + place[:, None] + j[None, :], (d < K)[:, None] & inside[None, :], 0.0)


@triton.jit
def vectors_at(vectors, j, inside, K: tl.constexpr, M: tl.constexpr, MP: tl.constexpr):
    """The vectors at the places j of a column, [J, MP]."""
    c = tl.arange(0, MP)
    return tl.load(vectors + (j // K)[:, None] * M + c[None, :], inside[:, None] & (c < M)[None, :], 0.0)


@triton.jit
def place_of(b, Q: tl.constexpr, S: tl.constexpr, BY_STATE: tl.constexpr):
    """Which number of a reading, or which vector of it, belongs to b = (y, r)."""
    return (b % Q) * S + b // Q if BY_STATE else b // Q


@triton.jit
def show(
    chart, vectors, p, readings, t, low, symbol, row,
    Q: tl.constexpr, S: tl.constexpr, M: tl.constexpr, BY_STATE: tl.constexpr,
    KP: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The reading of time t.

    Args:
        p: [KP], the probabilities of the configuration types.
        low: the first position that counts.
    """
    K: tl.constexpr = Q * S
    N: tl.constexpr = K if BY_STATE else S
    WIDTH: tl.constexpr = M if M > 0 else 1
    b, n, c = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    dtype = chart.dtype.element_ty
    each = tl.full((KP, MP), 1.0, dtype)
    if M > 0:
        each = tl.zeros((KP, MP), dtype)
        for j0 in range(low * K, (t + 1) * K, DEPTH):
            j = j0 + tl.arange(0, DEPTH)
            inside = j < (t + 1) * K
            column = columns_at(chart, t, symbol, row, j, inside, Q, K, KP)
            each += matmul(column, vectors_at(vectors, j, inside, K, M, MP))
    each *= p.to(dtype)[:, None]
    own = (place_of(b, Q, S, BY_STATE)[None, :] == n[:, None]) & (b < K)[None, :]
    shown = tl.sum(tl.where(own[:, :, None], each[None, :, :], 0.0), 1)
    tl.store(readings + n[:, None] * WIDTH + c[None, :], shown, (n < N)[:, None] & (c < WIDTH)[None, :])


@triton.jit
def show_back(
    readings, grads, p,
    Q: tl.constexpr, S: tl.constexpr, M: tl.constexpr, BY_STATE: tl.constexpr,
    KP: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """What a reading says about log alpha, [KP], and about a vector of one's own column, p_b g_b [KP, MP].

    Args:
        readings, grads: what was shown, and the derivative with respect to it.
    """
    K: tl.constexpr = Q * S
    N: tl.constexpr = K if BY_STATE else S
    WIDTH: tl.constexpr = M if M > 0 else 1
    b, n, c = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    place, fine = n[:, None] * WIDTH + c[None, :], (n < N)[:, None] & (c < WIDTH)[None, :]
    mean = tl.sum(tl.sum(tl.load(readings + place, fine, 0.0) * tl.load(grads + place, fine, 0.0), 1), 0)
    place = place_of(b, Q, S, BY_STATE)[:, None] * WIDTH + c[None, :]
    weights = p[:, None] * tl.load(grads + place, (b < K)[:, None] & (c < WIDTH)[None, :], 0.0)
    ends = -p * mean
    if M == 0:
        ends += tl.sum(weights, 1)
    return ends, weights


@triton.jit
def action_rows(actions, other, K: tl.constexpr, Q: tl.constexpr, KP: tl.constexpr, QP: tl.constexpr):
    """What belongs to pushes and replacements, [d, b], and to pops, [d, r], numbered as given.

    Args:
        other: what stands where there is nothing, in rows that there are; in others it is 0.
    """
    d, r = tl.arange(0, KP), tl.arange(0, QP)
    nothing = tl.where(d < K, other, 0.0)[:, None]
    square, some = d[:, None] * K + d[None, :], (d < K)[:, None] & (d < K)[None, :]
    push = tl.where(some, tl.load(actions + square, some, 0.0), nothing)
    replace = tl.where(some, tl.load(actions + K * K + square, some, 0.0), nothing)
    some = (d < K)[:, None] & (r < Q)[None, :]
    pop = tl.load(actions + 2 * K * K + d[:, None] * Q + r[None, :], some, 0.0)
    return push, replace, tl.where(some, pop, nothing)


@triton.jit
def put_rows(
    actions, push, replace, pop, K: tl.constexpr, Q: tl.constexpr, KP: tl.constexpr, QP: tl.constexpr
):
    """Write what `action_rows` reads; all threads have read it before."""
    d, r = tl.arange(0, KP), tl.arange(0, QP)
    square, some = d[:, None] * K + d[None, :], (d < K)[:, None] & (d < K)[None, :]
    tl.debug_barrier()
    tl.store(actions + square, push, some)
    tl.store(actions + K * K + square, replace, some)
    place = 2 * K * K + d[:, None] * Q + r[None, :]
    tl.store(actions + place, pop, (d < K)[:, None] & (r < Q)[None, :])
    tl.debug_barrier()


@triton.jit
def normalize(actions, K: tl.constexpr, Q: tl.constexpr, KP: tl.constexpr, QP: tl.constexpr):
    """Make the weights of all actions from one (state, symbol) sum to 1 (eq. 4.4)."""
    push, replace, pop = action_rows(actions, NEG, K, Q, KP, QP)
    best = tl.maximum(tl.maximum(tl.max(push, 1), tl.max(replace, 1)), tl.max(pop, 1))[:, None]
    total = tl.sum(exp_from(push, best) + exp_from(replace, best), 1) + tl.sum(exp_from(pop, best), 1)
    norm = best + tl.log(tl.where(total > 0, total, 1.0))[:, None]
    put_rows(actions, push - norm, replace - norm, pop - norm, K, Q, KP, QP)


@triton.jit
def normalize_back(actions, grads, K: tl.constexpr, Q: tl.constexpr, KP: tl.constexpr, QP: tl.constexpr):
    """From derivatives with respect to normalised log weights to those with respect to logits, in place."""
    push, replace, pop = action_rows(actions, NEG, K, Q, KP, QP)
    by_push, by_replace, by_pop = action_rows(grads, 0.0, K, Q, KP, QP)
    total = (tl.sum(by_push + by_replace, 1) + tl.sum(by_pop, 1))[:, None]
    by_push -= tl.exp(push) * total
    by_replace -= tl.exp(replace) * total
    put_rows(grads, by_push, by_replace, by_pop - tl.exp(pop) * total, K, Q, KP, QP)
