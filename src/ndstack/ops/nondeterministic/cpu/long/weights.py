# mypy: allow-untyped-defs, allow-untyped-calls
"""What the gradient by blocks of time steps needs of all steps before it begins (see `backward`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.forward import first_of, lowest_of
from ndstack.ops.nondeterministic.cpu.scan_loops import reading_gradient
from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import kernel, kernel_loop, maker

_LARGE = 60.0


class Weights(NamedTuple):
    """The weights of all steps of a sequence.

    Attributes:
        push, replace: [times, K * K], WU and WR, at d * K + b.
        pop: [times, K * Q], CP, at d * Q + r.
        uncover: [times, K], E.
        ends: [times, K], ab[t, b] + gr_b.
        exponents, best, shown: room for one step.
    """

    push: np.ndarray
    replace: np.ndarray
    pop: np.ndarray
    uncover: np.ndarray
    ends: np.ndarray
    exponents: np.ndarray
    best: np.ndarray
    shown: np.ndarray


@maker
def make_weights(shape, times, like):
    """Room for the weights of so many times."""
    Q, K = shape.states, shape.states * shape.symbols
    return Weights(
        np.zeros((times, K * K), like.dtype),
        np.zeros((times, K * K), like.dtype),
        np.zeros((times, K * Q), like.dtype),
        np.zeros((times, K), like.dtype),
        np.zeros((times, K), like.dtype),
        np.zeros(2 * K * K + K * Q + K),
        np.zeros(Q),
        np.zeros(K),
    )


@kernel
def _uncovers(shape, past, t, r, y, pop):
    """Whether a pop of step t into state r uncovers a symbol y; slow."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    low, band = first_of(shape, t), shape.band
    lowest = lowest_of(shape, t) if band > 0 or shape.fix else 1
    for d in range(K):
        column = shape.start[t - 1] + d * shape.stride[t - 1] - first_of(shape, t - 1) * K
        for k in range(lowest if pop[d * Q + r] > 0 else t, t - 1):
            for u in range(Q):
                c = u * S + y
                kept = band == 0 or past.mass[k, low - (k - band), c] > 0
                if kept and past.chart[column + k * K + c] > 0:
                    return True
    return False


@kernel
def find_weights(shape, past, t, actions, weights):
    """WU, WR, CP and E of step t, from what the forward pass left."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    e, best, before, total = weights.exponents, weights.best, past.log_alpha[t - 1], past.log_total[t]
    for r in range(Q):
        best[r] = -math.inf
        for d in range(K):
            x = before[d] + actions[2 * K * K + d * Q + r]
            best[r] = x if x > best[r] else best[r]
    for d in range(K):
        held = past.mass[t - 1, 1, d] > 0 if shape.band > 0 else t > 1 or shape.fix
        for b in range(K):
            top = total[b] if total[b] > -math.inf else math.inf
            e[d * K + b] = before[d] + actions[d * K + b] - top
            e[K * K + d * K + b] = before[d] + actions[K * K + d * K + b] - top if held else -math.inf
        for r in range(Q):
            top = best[r] if best[r] > -math.inf else 0.0
            e[2 * K * K + d * Q + r] = before[d] + actions[2 * K * K + d * Q + r] - top
    own = e[2 * K * K + K * Q :]
    for b in range(K):
        own[b] = best[b // S] - total[b] if total[b] > -math.inf else -math.inf
    exp_each(e)
    for j in range(K * K):
        weights.push[t, j] = e[j]
        weights.replace[t, j] = e[K * K + j]
    for j in range(K * Q):
        weights.pop[t, j] = e[2 * K * K + j]
    for b in range(K):  # a pop that uncovers nothing is no part of the total, and may exceed it by far
        needless = own[b] > math.exp(_LARGE) and not _uncovers(shape, past, t, b // S, b % S, weights.pop[t])
        weights.uncover[t, b] = 0.0 if needless else own[b]


@kernel_loop
def _add_ends(P, place, K, count, constant, grads, first, alpha):
    """alpha[(first + i) * K + a] += P[place + i * K + a] (constant + grads[first + i]), for i < count."""
    for i in range(count):
        x = constant + grads[first + i]
        for a in range(K):
            alpha[(first + i) * K + a] += P[place + i * K + a] * x


@kernel
def find_ends(shape, past, alpha, t, outputs, grad_outputs, weights, none):
    """ab[t, b] + gr_b, and what step t adds to ab[i, a].

    Args:
        alpha: ab, beginning with i = -1.
        outputs, grad_outputs: reading and attention of one sequence; the attention may be empty.
        none: an empty matrix and [times + 1] zeros, for want of an attention.
    """
    K = shape.states * shape.symbols
    reading, attention = outputs
    grad_reading, grad_attention = grad_outputs
    attended = grad_attention.size > 0
    weighted = attention[t - 1] if attended else none[0]
    grads = grad_attention[t - 1] if attended else none[0]
    reading_gradient(reading[t - 1], grad_reading[t - 1], weighted, grads, weights.shown)
    low = first_of(shape, t)
    begin = low if low > -1 else -1
    for b in range(K):
        weights.ends[t, b] = alpha[(t + 1) * K + b] + weights.shown[b]
        place = shape.start[t] + b * shape.stride[t] + (begin - low) * K
        by_step = grads[b] if attended else none[1]
        _add_ends(past.chart, place, K, t - begin, weights.ends[t, b], by_step, begin + 1, alpha)


@kernel
def find_all(shape, past, alpha, actions, outputs, grad_outputs, weights, none):
    """The weights of all steps, and ab."""
    fill(alpha, 0, alpha.size, 0)
    for t in range(actions.shape[0], 0, -1):
        find_weights(shape, past, t, actions[t - 1], weights)
        find_ends(shape, past, alpha, t, outputs, grad_outputs, weights, none)
