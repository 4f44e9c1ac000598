# mypy: allow-untyped-defs, allow-untyped-calls
"""An LSTM, its control layer and the nondeterministic stack over whole sequences, compiled.

The controller-stack interface of section 3.2 with nothing between the steps:

    gates_t   = inputs_t + reading_weight r_{t-1} + hidden_weight h_{t-1}
    c_t       = f_t c_{t-1} + i_t g_t,   h_t = o_t tanh(c_t)
    controls  = control_weight h_t + control_bias        (log weights; then the vector to push)
    r_t       = the stack's reading after these actions

Weight matrices come transposed, so that every product is a sum of rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndstack.ops.lstm.loops import controller_step, controller_step_backward
from ndstack.ops.nondeterministic.cpu.backward import Adjoint, backward_step, make_later
from ndstack.ops.nondeterministic.cpu.forward import (
    begin,
    forward_step,
    has_invalid_weight,
    make_work,
    not_finite,
)
from ndstack.ops.nondeterministic.cpu.reading import make_rows, read_gradient, show, show_back, write_vector
from ndstack.ops.nondeterministic.cpu.scan_loops import past_of, split
from ndstack.ops.runtime.exponentials import sigmoid_each
from ndstack.ops.runtime.simd import entry, kernel


class Net(NamedTuple):
    """The controller's weights: [R, 4H], [H, 4H], [H, C] and [C]."""

    reading: np.ndarray
    hidden: np.ndarray
    control: np.ndarray
    control_bias: np.ndarray


class Trace(NamedTuple):
    """What happened, [B, n, ...]: for the owner, and for the way back.

    Attributes:
        gates: [4H], after their activations (input, forget, cell, output).
        cells: [H], c_t.
        hidden: [H], h_t.
        readings: [R].
        actions: [A], log weights.
        vectors: [B, start + n + 1, m], on all positions of the chart; the first start + 1 given.
    """

    gates: np.ndarray
    cells: np.ndarray
    hidden: np.ndarray
    readings: np.ndarray
    actions: np.ndarray
    vectors: np.ndarray


@kernel
def normalize(shape, actions):
    """Make the weights of all actions from one (state, symbol) sum to 1 (eq. 4.4)."""
    Q = shape.states
    K = Q * shape.symbols
    push, replace, pop = split(shape, actions)
    for d in range(K):
        best = max(push[d * K : d * K + K].max(), replace[d * K : d * K + K].max())
        best = max(best, pop[d * Q : d * Q + Q].max())
        total = 0.0
        for b in range(K):
            total += math.exp(push[d * K + b] - best) + math.exp(replace[d * K + b] - best)
        for r in range(Q):
            total += math.exp(pop[d * Q + r] - best)
        norm = best + math.log(total)
        push[d * K : d * K + K] -= norm
        replace[d * K : d * K + K] -= norm
        pop[d * Q : d * Q + Q] -= norm


@kernel
def normalize_back(shape, actions, grads):
    """Turn the derivatives by normalised log weights into those by the logits, in place."""
    Q = shape.states
    K = Q * shape.symbols
    push, replace, pop = split(shape, actions)
    dpush, dreplace, dpop = split(shape, grads)
    for d in range(K):
        total = 0.0
        for b in range(d * K, d * K + K):
            total += dpush[b] + dreplace[b]
        for r in range(d * Q, d * Q + Q):
            total += dpop[r]
        for b in range(d * K, d * K + K):
            dpush[b] -= total * math.exp(push[b])
            dreplace[b] -= total * math.exp(replace[b])
        for r in range(d * Q, d * Q + Q):
            dpop[r] -= total * math.exp(pop[r])


@entry
def forward(shape, past, lo, hi, start, net, inputs, first, normalized, by_state, trace, ok, limit):
    """Sequences lo .. hi - 1 of a batch, from the charts of time `start` on.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates.
        first: h_0 [B, H], c_0 [B, H] and r_0 [B, R].
        trace: to be written.
    """
    steps, m = inputs.shape[1], trace.vectors.shape[2]
    A = trace.actions.shape[2]
    work = make_work(shape, start + steps + 1, past.chart)
    rows = make_rows(shape, start + steps + 1, m, past.chart)
    controls = np.zeros(net.control_bias.shape[0], inputs.dtype)
    for b in range(lo, hi):
        own = past_of(past, b)
        if start == 0:
            begin(shape, own)
        ok[b] = own.lost[0] < math.inf
        before = first[0][b], first[1][b], first[2][b]
        for j in range(start + 1 if ok[b] else 0):
            write_vector(shape, rows, j, trace.vectors[b, j])
        done = 0
        for n in range(steps if ok[b] else 0):
            t = start + n + 1
            controller_step(
                n, net, before, inputs[b], trace.gates[b], trace.cells[b], trace.hidden[b],
                trace.readings[b], controls,
            )  # fmt: skip
            trace.actions[b, n] = controls[:A]
            if normalized:
                normalize(shape, trace.actions[b, n])
            trace.vectors[b, t] = controls[A:]
            sigmoid_each(trace.vectors[b, t])
            done = n + 1
            if has_invalid_weight(trace.actions[b, n]) or not_finite(trace.vectors[b, t]):
                own.lost[0] = math.nan
                break
            write_vector(shape, rows, t, trace.vectors[b, t])
            push, replace, pop = split(shape, trace.actions[b, n])
            if not forward_step(shape, own, t, push, replace, pop, work, limit, False):
                ok[b] = False
                own.lost[0] = math.inf
                break
            show(shape, own, t, by_state, rows, work, trace.readings[b, n])
        if math.isnan(own.lost[0]):
            ok[b] = True
            mark_invalid(trace, b, start, done)


@kernel
def mark_invalid(trace, b, start, done):
    """What a run says of a sequence without a meaning after `done` steps, of which the last made it so."""
    trace.readings[b, max(done - 1, 0) :] = math.nan
    trace.gates[b, done:] = math.nan
    trace.cells[b, done:] = math.nan
    trace.hidden[b, done:] = math.nan
    trace.actions[b, done:] = math.nan
    trace.vectors[b, start + 1 + done :] = math.nan


@kernel
def has_nonfinite_gradient(given, adjoint, carried, b):
    """Whether a sequence gets derivatives that are not finite."""
    ghiddens, greadings, glast, gactions, gvectors = given
    found = not_finite(glast[b]) or (carried and math.isnan(adjoint.alpha[b, 0]))
    for n in range(ghiddens.shape[1]):
        found |= not_finite(ghiddens[b, n]) or not_finite(greadings[b, n]) or not_finite(gactions[b, n])
    for j in range(gvectors.shape[1]):
        found |= not_finite(gvectors[b, j])
    return found


@entry
def backward(
    shape,
    past,
    adjoint,
    carried,
    lo,
    hi,
    start,
    net,
    first,
    normalized,
    by_state,
    trace,
    given,
    out,
):
    """The derivatives of `forward`, for sequences that it could be trusted with.

    Args:
        adjoint, carried: see `scan_loops.backward`.
        net: the weights, as there; the bias does not count.
        given: derivatives by h_1..h_n, r_1..r_n, c_n, the actions and the vectors.
        out: derivatives by the gates, the controls, h_0, c_0, r_0 and the vectors before the call,
            to be written; [B, n, 4H], [B, n, C], [B, H], [B, H], [B, R], [B, start + n + 1, m].
    """
    ghiddens, greadings, glast, gactions, gvectors = given
    ggates, gcontrols, ghidden0, gcell0, greading0, gall = out
    steps, A, m = trace.gates.shape[1], trace.actions.shape[2], trace.vectors.shape[2]
    K = shape.states * shape.symbols
    work = make_work(shape, start + steps + 1, past.chart)
    rows = make_rows(shape, start + steps + 1, m, past.chart)
    galpha, no_attention = np.zeros(K), np.zeros((0, 0), past.chart.dtype)
    layers = net.reading, net.hidden, net.control
    for b in range(lo, hi):
        own = past_of(past, b)
        if own.lost[0] == math.inf:
            continue
        if math.isnan(own.lost[0]) or has_nonfinite_gradient(given, adjoint, carried, b):
            for part in (ggates, gcontrols, gall):
                part[b] = math.nan
            for part in (ghidden0, gcell0, greading0):
                part[b] = math.nan
            continue
        back = Adjoint(adjoint.chart[b if carried else 0], adjoint.alpha[b if carried else 0])
        if not carried:
            back.chart[:] = 0
            back.alpha[:] = 0
        later = make_later(shape, start, start + steps, carried, past.chart)
        ghidden, gcell, greading = ghidden0[b], gcell0[b], greading0[b]
        ghidden[:] = 0
        gcell[:] = glast[b]
        greading[:] = 0
        gall[b] = gvectors[b]
        rows.grads[:] = 0
        for j in range(start + steps + 1):
            write_vector(shape, rows, j, trace.vectors[b, j])
        for n in range(steps - 1, -1, -1):
            t = start + n + 1
            greading += greadings[b, n]
            show_back(shape, own, back, t, by_state, rows, work, trace.readings[b, n], greading, galpha)
            gcontrol = gcontrols[b, n]
            push, replace, pop = split(shape, trace.actions[b, n])
            written = split(shape, gcontrol[:A])
            backward_step(shape, own, back, later, t, push, replace, pop, galpha, no_attention, written, work)
            gcontrol[:A] += gactions[b, n]
            if normalized:
                normalize_back(shape, trace.actions[b, n], gcontrol[:A])
            read_gradient(shape, rows, t, gall[b, t])
            for c in range(m):
                v = trace.vectors[b, t, c]
                gcontrol[A + c] = gall[b, t, c] * v * (1 - v)
            controller_step_backward(
                n, layers, first[1][b], trace.gates[b], trace.cells[b], ghiddens[b],
                gcontrols[b], ggates[b], (ghidden, gcell, greading),
            )  # fmt: skip
        for j in range(start + 1):
            read_gradient(shape, rows, j, gall[b, j])
