# mypy: allow-untyped-defs, allow-untyped-calls
"""An LSTM, its control layer and the nondeterministic stack over whole sequences, compiled.

The controller-stack interface of section 3.2 with nothing between the steps:

    gates_t   = inputs_t + read_weight [r_{t-1}; h_{t-1}]
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
from ndstack.ops.nondeterministic.cpu.backward import (
    Adjoint,
    backward_step,
    clear_columns,
    gather,
    make_later,
)
from ndstack.ops.nondeterministic.cpu.forward import (
    Past,
    Shape,
    begin,
    forward_step,
    has_invalid_weight,
    not_finite,
)
from ndstack.ops.nondeterministic.cpu.reading import make_rows, read_gradient, show, show_back, write_vector
from ndstack.ops.nondeterministic.cpu.scan_loops import past_of, split
from ndstack.ops.nondeterministic.cpu.work import make_work
from ndstack.ops.runtime.exponentials import exp_each, sigmoid_each
from ndstack.ops.runtime.products import add_scaled, copy, fill
from ndstack.ops.runtime.simd import entry, kernel


class Net(NamedTuple):
    """The controller's weights: [R + H, 4H], [H, C] and [C]."""

    read: np.ndarray
    control: np.ndarray
    control_bias: np.ndarray


class Trace(NamedTuple):
    """What happened, [B, n, ...]: for the owner, and for the way back.

    Attributes:
        before: [R + H], r_{t-1} and h_{t-1}.
        gates: [4H], after their activations (input, forget, cell, output).
        cells: [H], c_t.
        hidden: [H], h_t.
        readings: [R].
        actions: [A], log weights.
        vectors: [B, start + n + 1, m], on all positions of the chart; the first start + 1 given.
    """

    before: np.ndarray
    gates: np.ndarray
    cells: np.ndarray
    hidden: np.ndarray
    readings: np.ndarray
    actions: np.ndarray
    vectors: np.ndarray


@kernel
def normalize(shape, actions, work):
    """Make the weights of all actions from one (state, symbol) sum to 1 (eq. 4.4)."""
    Q = shape.states
    K = Q * shape.symbols
    best, total, replace, pop = work.tops, work.sums, K * K, 2 * K * K
    for d in range(K):
        best[d] = actions[d * K]
        for b in range(d * K, d * K + K):
            x = actions[b] if actions[b] > actions[replace + b] else actions[replace + b]
            best[d] = x if x > best[d] else best[d]
        for r in range(pop + d * Q, pop + d * Q + Q):
            best[d] = actions[r] if actions[r] > best[d] else best[d]
        for b in range(d * K, d * K + K):
            work.shares[b] = actions[b] - best[d]
            work.shares[replace + b] = actions[replace + b] - best[d]
        for r in range(pop + d * Q, pop + d * Q + Q):
            work.shares[r] = actions[r] - best[d]
    exp_each(work.shares)
    for d in range(K):
        total[d] = 0.0
        for b in range(d * K, d * K + K):
            total[d] += work.shares[b] + work.shares[replace + b]
        for r in range(pop + d * Q, pop + d * Q + Q):
            total[d] += work.shares[r]
        norm = best[d] + math.log(total[d])
        for b in range(d * K, d * K + K):
            actions[b] -= norm
            actions[replace + b] -= norm
        for r in range(pop + d * Q, pop + d * Q + Q):
            actions[r] -= norm


@kernel
def normalize_back(shape, actions, grads, work):
    """Turn derivatives with respect to normalised log weights into those with respect to logits, in place."""
    Q = shape.states
    K = Q * shape.symbols
    replace, pop = K * K, 2 * K * K
    copy(actions, work.shares)
    exp_each(work.shares)
    for d in range(K):
        total = 0.0
        for b in range(d * K, d * K + K):
            total += grads[b] + grads[replace + b]
        for r in range(pop + d * Q, pop + d * Q + Q):
            total += grads[r]
        for b in range(d * K, d * K + K):
            grads[b] -= total * work.shares[b]
            grads[replace + b] -= total * work.shares[replace + b]
        for r in range(pop + d * Q, pop + d * Q + Q):
            grads[r] -= total * work.shares[r]


@entry
def forward(lo, hi, shape, past, start, net, inputs, first, normalized, by_state, trace, ok, limit):
    """Sequences lo .. hi - 1 of a batch, from the charts of time `start` on.

    Args:
        inputs: [B, n, 4H], what the input contributes to the gates.
        first: h_0 [B, H], c_0 [B, H] and r_0 [B, R].
        trace: to be written.
    """
    times = start + inputs.shape[1] + 1
    work = make_work(shape, times, past.chart)
    rows = make_rows(shape, times, trace.vectors.shape[2], past.chart)
    controls = np.zeros(net.control_bias.shape[0], inputs.dtype)
    room = work, rows, controls
    for b in range(lo, hi):
        ok[b] = _forward(shape, past, b, start, net, inputs, first, normalized, by_state, trace, limit, room)


@kernel
def _forward(shape, past, b, start, net, inputs, first, normalized, by_state, trace, limit, room):
    work, rows, controls = room
    A, own = trace.actions.shape[2], past_of(past, b)
    strict = start < 0  # False, but not a constant: a literal would compile `forward_step` once more
    if start == 0:
        begin(shape, own, work)
    fine = own.lost[0] < math.inf
    before = first[0][b], first[1][b], first[2][b]
    for j in range(start + 1 if fine else 0):
        write_vector(shape, rows, j, trace.vectors[b, j])
    done = 0
    for n in range(inputs.shape[1] if fine else 0):
        t = start + n + 1
        controller_step(
            n, net, before, inputs[b], trace.before[b], trace.gates[b], trace.cells[b], trace.hidden[b],
            trace.readings[b], controls,
        )  # fmt: skip
        actions, vector = trace.actions[b, n], trace.vectors[b, t]
        copy(controls, actions)
        if normalized:
            normalize(shape, actions, work)
        copy(controls[A:], vector)
        sigmoid_each(vector)
        done = n + 1
        if has_invalid_weight(actions) or not_finite(vector):
            own.lost[0] = math.nan
            break
        write_vector(shape, rows, t, vector)
        push, replace, pop = split(shape, actions)
        if not forward_step(shape, own, t, push, replace, pop, work, limit, strict):
            own.lost[0] = math.inf
            break
        show(shape, own, t, by_state, rows, work, trace.readings[b, n])
    if math.isnan(own.lost[0]):
        fill_rest(trace, b, start, done, math.nan)
    elif own.lost[0] == math.inf:
        fill_rest(trace, b, start, done, 0.0)
    return own.lost[0] != math.inf


@kernel
def fill_rows(matrix, first, value):
    """matrix[first:] = value."""
    for j in range(first, matrix.shape[0]):
        fill(matrix[j], 0, matrix.shape[1], value)


@kernel
def fill_rest(trace, b, start, done, value):
    """What a run says of a sequence that ends after `done` steps, because the last could not be completed."""
    fill_rows(trace.readings[b], done - 1 if done > 1 else 0, value)
    fill_rows(trace.before[b], done, value)
    fill_rows(trace.gates[b], done, value)
    fill_rows(trace.cells[b], done, value)
    fill_rows(trace.hidden[b], done, value)
    fill_rows(trace.actions[b], done, value)
    fill_rows(trace.vectors[b], start + 1 + done, value)


@kernel
def has_nonfinite_gradient(given, adjoint, carried, b):
    """Whether a sequence gets derivatives that are not finite."""
    ghiddens, greadings, glast, gactions, gvectors = given
    found = not_finite(glast[b]) or (carried and math.isnan(adjoint.alpha[b, 0]))
    for part in (ghiddens[b], greadings[b], gactions[b], gvectors[b]):
        for j in range(part.shape[0]):
            found |= not_finite(part[j])
    return found


@entry
def backward(
    lo,
    hi,
    shape,
    past,
    adjoint,
    carried,
    older,
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
        adjoint: for a batch; if it is not carried, it may hold anything, and only row `lo` is used.
        carried: whether it holds what later calls say about the charts of this one.
        older: whether it is to hold the derivatives of the charts of time `start` afterwards; it is carried.
        net: the weights, as there; the bias does not count.
        given: derivatives with respect to h_1..h_n, r_1..r_n, c_n, the actions and the vectors; those of
            readings and actions may be missing, [B, 0, ...].
        out: derivatives with respect to the gates, the controls, h_0, c_0, r_0 and the vectors before the
            call, to be written; [B, n, 4H], [B, n, C], [B, H], [B, H], [B, R], [B, start + n + 1, m].
    """
    times = start + trace.gates.shape[1] + 1
    work = make_work(shape, times, past.chart)
    rows = make_rows(shape, times, trace.vectors.shape[2], past.chart)
    later = make_later(shape, start, times - 1, older, past.chart)
    galpha = np.zeros(shape.states * shape.symbols)
    room = work, rows, later, galpha, np.zeros((0, 0), past.chart.dtype), carried
    for b in range(lo, hi):
        if past.lost[b, 0] == math.inf:
            _fill_gradients(out, adjoint, older, b, 0.0)
        elif math.isnan(past.lost[b, 0]) or has_nonfinite_gradient(given, adjoint, carried, b):
            _fill_gradients(out, adjoint, older, b, math.nan)
        else:
            row = b if carried else lo
            _clear_gradients(adjoint, carried, row, rows, given, out, b)
            _backward(
                shape, past, adjoint, row, b, start, net, first, normalized, by_state, trace, given, out, room
            )


@kernel
def _fill_gradients(out, adjoint, older, b, value):
    """What the derivatives of a sequence are that has none."""
    zero = b - b  # no literal, for which numba would compile again
    if older:
        fill(adjoint.chart[b], zero, adjoint.chart.shape[1], value)
        fill(adjoint.alpha[b], zero, adjoint.alpha.shape[1], value)
    for part in (out[0], out[1], out[5]):
        fill_rows(part[b], zero, value)
    for part in (out[2], out[3], out[4]):
        fill(part[b], zero, part.shape[1], value)


@kernel
def _clear_gradients(adjoint, carried, row, rows, given, out, b):
    """Before the last step of a sequence nothing is known but what is given."""
    if not carried:
        fill(adjoint.alpha[row], 0, adjoint.alpha.shape[1], 0)
    fill(out[2][b], 0, out[2].shape[1], 0)
    copy(given[2][b], out[3][b])
    fill(out[4][b], 0, out[4].shape[1], 0)
    for j in range(given[4].shape[1]):
        copy(given[4][b, j], out[5][b, j])
    fill(rows.grads, 0, rows.grads.size, 0)


@kernel
def _backward(
    shape, past, adjoint, row, b, start, net, first, normalized, by_state, trace, given, out, room
):  # fmt: skip
    work, rows, later, galpha, no_attention, carried = room
    ghiddens, greadings, _, gactions, _ = given
    ggates, gcontrols, ghidden, gcell, greading, gall = out
    A, m, one = trace.actions.shape[2], trace.vectors.shape[2], greadings.dtype.type(1)
    own, back = past_of(past, b), Adjoint(adjoint.chart[row], adjoint.alpha[row])
    layers = net.read, net.control
    passed = ghidden[b], gcell[b], greading[b]
    for j in range(trace.vectors.shape[1]):
        write_vector(shape, rows, j, trace.vectors[b, j])
    for n in range(trace.gates.shape[1] - 1, -1, -1):
        t, gcontrol, vector = start + n + 1, gcontrols[b, n], trace.vectors[b, start + n + 1]
        if greadings.shape[1] > 0:
            add_scaled(one, greadings[b, n], passed[2])
        if not carried:
            clear_columns(shape, back, later, t)
        show_back(shape, own, back, t, by_state, rows, work, trace.readings[b, n], passed[2], galpha)
        push, replace, pop = split(shape, trace.actions[b, n])
        written = split(shape, gcontrol[:A])
        backward_step(shape, own, back, later, t, push, replace, pop, galpha, no_attention, written, work)
        if gactions.shape[1] > 0:
            add_scaled(one, gactions[b, n], gcontrol[:A])
        if normalized:
            normalize_back(shape, trace.actions[b, n], gcontrol[:A], work)
        read_gradient(shape, rows, t, gall[b, t])
        for c in range(m):
            gcontrol[A + c] = gall[b, t, c] * vector[c] * (1 - vector[c])
        controller_step_backward(
            n, layers, first[1][b], trace.gates[b], trace.cells[b], ghiddens[b],
            gcontrols[b], ggates[b], passed,
        )  # fmt: skip
    if later.older:
        gather(shape, back, later, start, work)
    for j in range(start + 1):
        read_gradient(shape, rows, j, gall[b, j])


def example_of_backward(dtype: str) -> tuple[object, ...]:
    """Arguments of the types that `backward` is called with (see `runtime.beside`)."""

    def arrays(*dimensions: int, kind: str = dtype) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros((1,) * count, kind) for count in dimensions)

    shape = Shape(1, 1, 0, True, *arrays(1, 1, kind="int64"))
    past = Past(*arrays(2), *arrays(3, 3, 4, 3, 2, kind="float64"))
    adjoint, net, trace = Adjoint(*arrays(2, 2)), Net(*arrays(2, 2, 1)), Trace(*arrays(*[3] * 7))
    given, out = arrays(3, 3, 2, 3, 3), arrays(3, 3, 2, 2, 2, 3)
    return 0, 0, shape, past, adjoint, False, False, 0, net, arrays(2, 2, 2), False, True, trace, given, out
