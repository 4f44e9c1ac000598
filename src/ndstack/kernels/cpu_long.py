# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled scans over given actions by blocks of time steps: parts of a batch, there and back."""

from __future__ import annotations

import math

import numpy as np

from ndstack.kernels.cpu_backward import Adjoint, spread_reading
from ndstack.kernels.cpu_forward import advance, attend, begin, room
from ndstack.kernels.cpu_long_backward import long_block_back, make_back, make_weights
from ndstack.kernels.cpu_long_forward import long_block, make_block
from ndstack.kernels.cpu_scan import past_of, reading_gradient, split
from ndstack.kernels.cpu_simd import entry, kernel


@kernel
def next_block(t, steps, head, size):
    """The last step of the block that begins with step t + 1; the first `head` steps are one block."""
    if t < head:
        return min(head, steps)
    blocks = (steps - t + size - 1) // size
    return t + (steps - t + blocks - 1) // blocks


@entry
def forward(shape, past, lo, hi, actions, reading, attention, ok, limit, strict, head, size):
    """Sequences lo .. hi - 1 of a batch, from time 0 on; arguments as for `cpu_scan.forward`.

    Args:
        head: how many steps are done one by one before the first block.
        size: the greatest number of steps in a block.
    """
    steps = actions.shape[1]
    work = room(shape, head + 1, past.chart)
    block = make_block(shape, size, steps + 1, past.chart)
    for b in range(lo, hi):
        own = past_of(past, b)
        begin(shape, own)
        ok[b] = True
        t = 0
        while t < steps and ok[b]:
            last = next_block(t, steps, head, size)
            if t == 0:
                for n in range(last):
                    push, replace, pop = split(shape, actions[b, n])
                    ok[b] &= advance(shape, own, n + 1, push, replace, pop, work, limit, strict)
            else:
                ok[b] = long_block(shape, own, t, last - t, actions[b], block, limit, strict)
            for n in range(t, last if ok[b] else t):
                reading[b, n] = np.exp(own.log_alpha[n + 1])
                if attention.size > 0:
                    attend(shape, own, n + 1, attention[b, n])
            t = last
        if not ok[b]:
            own.lost[0] = math.inf


@entry
def backward(shape, past, adjoint, lo, hi, actions, outputs, grad_outputs, grads, ok, head, size):
    """The gradient of `forward`; arguments as for `cpu_scan.backward`, nothing carried."""
    reading, attention = outputs
    greading, gattention = grad_outputs
    steps = actions.shape[1]
    work = room(shape, steps + 1, past.chart)
    back = make_back(shape, max(size, head), steps + 1, past.chart)
    grad_alpha = np.zeros(reading.shape[2])
    none = np.zeros((0, 0), attention.dtype)
    ends = np.zeros(steps + 2, np.int64)
    for b in range(lo, hi):
        if not ok[b]:
            continue
        own = past_of(past, b)
        own_adjoint = Adjoint(adjoint.chart[0], adjoint.alpha[0])
        own_adjoint.chart[:] = 0
        own_adjoint.alpha[:] = 0
        for n in range(steps - 1, -1, -1):
            att = attention[b, n] if gattention.size > 0 else none
            gatt = gattention[b, n] if gattention.size > 0 else none
            reading_gradient(reading[b, n], greading[b, n], att, gatt, grad_alpha)
            spread_reading(shape, own, own_adjoint, n + 1, grad_alpha, gatt, work)
        weights = make_weights(shape, own, steps, actions[b])
        blocks = 0
        while ends[blocks] < steps:
            ends[blocks + 1] = next_block(ends[blocks], steps, head, size)
            blocks += 1
        for j in range(blocks - 1, -1, -1):
            t0, t1 = ends[j], ends[j + 1]
            long_block_back(shape, own, own_adjoint, weights, t0, t1, steps, back, grads[b])
