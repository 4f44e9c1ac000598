# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled scans over given actions by blocks of time steps: one sequence of a batch, there and back."""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.nondeterministic.cpu.forward import begin
from ndstack.ops.nondeterministic.cpu.long.backward import make_back
from ndstack.ops.nondeterministic.cpu.long.columns import find_alpha, write_columns
from ndstack.ops.nondeterministic.cpu.long.forward import (
    inner_rows,
    make_block,
    older_rows,
    scale_weights,
)
from ndstack.ops.nondeterministic.cpu.long.lost_mass import (
    bound_loss,
    leave_bound,
    make_bound,
    take_bound,
)
from ndstack.ops.nondeterministic.cpu.long.strips import backward_block
from ndstack.ops.nondeterministic.cpu.long.weights import find_all, make_weights
from ndstack.ops.nondeterministic.cpu.lost_mass import largest
from ndstack.ops.nondeterministic.cpu.reading import attend, probabilities
from ndstack.ops.nondeterministic.cpu.scan_loops import past_of
from ndstack.ops.nondeterministic.cpu.work import make_work
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import entry, kernel


@kernel
def _block(shape, past, t0, count, actions, block, bound, limit, strict):
    """Steps t0 + 1 .. t0 + count of one sequence. Returns False if they have to be done one by one."""
    K = shape.states * shape.symbols
    alive = True
    for b in range(K):
        block.alpha[0, b] = math.exp(past.log_alpha[t0, b])
        alive &= block.alpha[0, b] > 0.0 or past.log_alpha[t0, b] == -math.inf
    if not alive or largest(past.log_alpha[t0], K) == -math.inf:
        return False
    scale_weights(shape, past, t0, count, actions, block)
    inner_rows(shape, count, block)
    older_rows(shape, past, t0, count, block)
    if not find_alpha(shape, past, t0, count, block):
        return False
    write_columns(shape, past, t0, count, block)
    if not bound_loss(shape, past, t0, count, actions, block, bound, limit, strict):
        if shape.band > 0:  # single steps expect zeros
            fill(past.chart, shape.start[t0 + 1], shape.start[t0 + count] + K * shape.stride[t0 + count], 0)
        return False
    leave_bound(shape, past, bound)
    return True


@entry
def forward(shape, past, b, start, actions, reading, attention, limit, strict, size):
    """Sequence b of a batch from the chart of time `start` on; other arguments as for `scan_loops.forward`.

    Args:
        size: the greatest number of steps in a block.

    Returns:
        How far it got. If that is not the end, the next block of steps has to be done one by one.
    """
    steps = actions.shape[1]
    work = make_work(shape, 1, past.chart)
    block = make_block(shape, size, steps + 1, past.chart)
    bound = make_bound(shape)
    return _forward(shape, past, b, start, actions, reading, attention, work, block, bound, limit, strict)


@kernel
def _forward(shape, past, b, t, actions, reading, attention, work, block, bound, limit, strict):
    own, steps = past_of(past, b), actions.shape[1]
    if t == 0:
        begin(shape, own, work)
    take_bound(shape, own, bound)
    while t < steps:
        count = steps - t if steps - t < block.size else block.size
        if not _block(shape, own, t, count, actions[b], block, bound, limit, strict):
            return t
        for n in range(t, t + count):
            probabilities(own, n + 1, reading[b, n])
            if attention.size > 0:
                attend(shape, own, n + 1, attention[b, n])
        t += count
    return t


@entry
def backward(shape, past, adjoint, lo, hi, actions, outputs, grad_outputs, grads, ok, size):
    """The gradient of `forward` for sequences lo .. hi - 1; arguments as for `scan_loops.backward`."""
    steps, dtype = actions.shape[1], past.chart.dtype
    back = make_back(shape, size, steps + 2, past.chart)
    weights = make_weights(shape, steps + 1, past.chart)
    none = np.zeros((0, 0), dtype), np.zeros((0, 0, 0), dtype), np.zeros(steps + 2, dtype)
    for b in range(lo, hi):
        if ok[b]:
            _backward(shape, past, adjoint, b, actions, outputs, grad_outputs, grads, back, weights, none)


@kernel
def _backward(shape, past, adjoint, b, actions, outputs, grad_outputs, grads, back, weights, none):
    own, own_adjoint = past_of(past, b), Adjoint(adjoint.chart[0], adjoint.alpha[0])
    attended, steps = grad_outputs[1].size > 0, actions.shape[1]
    weighted = outputs[1][b] if attended else none[1]
    grad_attention = grad_outputs[1][b] if attended else none[1]
    shown, received = (outputs[0][b], weighted), (grad_outputs[0][b], grad_attention)
    zeros = none[0], none[2]
    find_all(shape, own, own_adjoint.alpha, actions[b], shown, received, weights, zeros)
    fill(back.next, 0, back.next.size, 0)
    for t0 in range((steps - 1) // back.size * back.size, -1, -back.size):
        t1 = t0 + back.size if t0 + back.size < steps else steps
        backward_block(
            shape, own, own_adjoint, weights, t0, t1, steps, grad_attention, back, grads[b], none[2]
        )
