# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled scans over given actions: parts of a batch, steps begin + 1 .. end, there and back."""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.nondeterministic.cpu.backward import Adjoint, backward_step, clear_columns, make_later
from ndstack.ops.nondeterministic.cpu.forward import (
    Past,
    begin,
    forward_step,
)
from ndstack.ops.nondeterministic.cpu.reading import attend, probabilities
from ndstack.ops.nondeterministic.cpu.work import make_work
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import entry, kernel


@kernel
def past_of(past, b):
    """The `Past` of one sequence of a batch."""
    return Past(
        past.chart[b],
        past.log_alpha[b],
        past.log_total[b],
        past.mass[b],
        past.floor[b],
        past.lost[b],
    )


@kernel
def split(shape, actions):
    """push, replace and pop of one step, one after the other in an array."""
    K = shape.states * shape.symbols
    return actions[: K * K], actions[K * K : 2 * K * K], actions[2 * K * K :]


@entry
def forward(shape, past, lo, hi, start, actions, reading, attention, ok, limit, strict):
    """Sequences lo .. hi - 1 of a batch, from the chart of time `start` on.

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
        reading: [B, n, K], to be written.
        attention: [B, n, K, start + n + 1], to be written; or empty.
        ok: [B], whether the mass lost to underflow stayed below e^limit, in this call and those
            before; to be written.
        strict: whether that is to hold for every configuration type on its own.
    """
    work = make_work(shape, start + actions.shape[1] + 1, past.chart)
    for b in range(lo, hi):
        ok[b] = _forward(shape, past, b, start, actions, reading, attention, work, limit, strict)


@kernel
def _forward(shape, past, b, start, actions, reading, attention, work, limit, strict):
    own = past_of(past, b)
    if start == 0:
        begin(shape, own, work)
    fine = own.lost[0] < math.inf
    for n in range(actions.shape[1] if fine else 0):
        t = start + n + 1
        push, replace, pop = split(shape, actions[b, n])
        if not forward_step(shape, own, t, push, replace, pop, work, limit, strict):
            own.lost[0] = math.inf
            return False
        probabilities(own, t, reading[b, n])
        if attention.size > 0:
            attend(shape, own, t, attention[b, n])
    return fine


@kernel
def reading_gradient(reading, grad, attention, grad_attention, out):
    """out_b: the derivative with respect to log alpha[t, b], through the reading and the attention of time t.

    p_b = alpha_b / sum alpha, and the attention is divided by alpha_b.
    """
    K = reading.shape[0]
    mean = 0.0
    for b in range(K):
        mean += reading[b] * grad[b]
    for b in range(K):
        out[b] = reading[b] * (grad[b] - mean)
        if grad_attention.size > 0:
            for i in range(grad_attention.shape[1]):
                out[b] -= grad_attention[b, i] * attention[b, i]


@entry
def backward(
    shape,
    past,
    adjoint,
    lo,
    hi,
    start,
    actions,
    outputs,
    grad_outputs,
    grads,
    ok,
):
    """The gradient of `forward`.

    Args:
        adjoint: room for one sequence, [1, ...].
        actions: [B, n, A].
        outputs: reading, attention.
        grad_outputs: likewise.
        grads: [B, n, A], to be written.
        ok: [B], the other sequences are passed over.
    """
    end = start + actions.shape[1]
    work = make_work(shape, end + 1, past.chart)
    older = start < 0  # False, but not a constant: a literal would compile `make_later` once more
    later = make_later(shape, start, end, older, past.chart)
    grad_alpha = np.zeros(shape.states * shape.symbols)
    none = np.zeros((0, 0), past.chart.dtype)
    for b in range(lo, hi):
        if ok[b]:
            room = later, work, grad_alpha, none
            _backward(shape, past, adjoint, b, start, actions, outputs, grad_outputs, grads, room)


@kernel
def _backward(shape, past, adjoint, b, start, actions, outputs, grad_outputs, grads, room):
    later, work, grad_alpha, none = room
    reading, attention = outputs
    greading, gattention = grad_outputs
    own, back = past_of(past, b), Adjoint(adjoint.chart[0], adjoint.alpha[0])
    fill(back.alpha, 0, back.alpha.size, 0)
    for n in range(actions.shape[1] - 1, -1, -1):
        t = start + n + 1
        att = attention[b, n] if gattention.size > 0 else none
        gatt = gattention[b, n] if gattention.size > 0 else none
        reading_gradient(reading[b, n], greading[b, n], att, gatt, grad_alpha)
        clear_columns(shape, back, later, t)
        push, replace, pop = split(shape, actions[b, n])
        written = split(shape, grads[b, n])
        backward_step(shape, own, back, later, t, push, replace, pop, grad_alpha, gatt, written, work)
