# mypy: allow-untyped-defs, allow-untyped-calls
"""Steps of carried charts, compiled: what `scan_loops` does, on memory given by addresses.

A step is short, and turning tensors into arrays would take as long as the step itself. So a chart
is described once, by a `ChartTable`, and every step gets the address of the table, in a `StepTable` of its
own. The backward pass has another one, an `AdjointTable` of what later steps have left for earlier ones.

Arrays made of addresses belong to nobody, so counting their users costs nothing, and numba insists on it: all
functions here are makers.
"""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.lstm.addressed_loops import drive, drive_backward, layers_at
from ndstack.ops.nondeterministic.cpu.backward import Adjoint, Later, backward_step, forget_use, gather
from ndstack.ops.nondeterministic.cpu.forward import (
    Past,
    Shape,
    begin,
    forward_step,
    has_invalid_weight,
    not_finite,
)
from ndstack.ops.nondeterministic.cpu.reading import attend, probabilities
from ndstack.ops.nondeterministic.cpu.scan_loops import reading_gradient, split
from ndstack.ops.nondeterministic.cpu.tables import ADJOINT, CHART, INVALID, STEP, TRUSTED, UNTRUSTED
from ndstack.ops.nondeterministic.cpu.work import make_work
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import fill
from ndstack.ops.runtime.simd import entry, maker

INTEGER, DOUBLE = np.int64(0), np.float64(0)


@maker
def width_of(kind):
    """How many bytes a number takes."""
    return numbers(0, 0, kind).itemsize


@maker
def chart_table(at):
    """The `ChartTable` at an address."""
    return numbers(at, len(CHART), INTEGER)


@maker
def adjoint_table(at):
    """The `AdjointTable` at an address."""
    return numbers(at, len(ADJOINT), INTEGER)


@maker
def step_table(at):
    """The `StepTable` at an address."""
    return numbers(at, len(STEP), INTEGER)


@maker
def shape_at(at):
    """The `Shape` of the charts of a table."""
    table = chart_table(at)
    times = table[CHART.times]
    return Shape(
        table[CHART.states],
        table[CHART.symbols],
        table[CHART.band],
        table[CHART.bottom_fix] != 0,
        numbers(table[CHART.start], times, INTEGER),
        numbers(table[CHART.stride], times, INTEGER),
    )


@maker
def past_at(at, lost_at, b, kind):
    """The `Past` of one sequence of a batch."""
    table = chart_table(at)
    K, band = table[CHART.states] * table[CHART.symbols], table[CHART.band]
    times, size = table[CHART.times], table[CHART.size]
    each = 8 * b * times * K
    rows = band + 1 if band > 0 else 0
    deep = times if band > 0 else 0
    return Past(
        numbers(table[CHART.columns] + b * size * width_of(kind), size, kind),
        numbers(table[CHART.log_alpha] + each, times * K, DOUBLE).reshape((times, K)),
        numbers(table[CHART.log_total] + each, times * K, DOUBLE).reshape((times, K)),
        numbers(table[CHART.mass] + each * rows, deep * rows * K, DOUBLE).reshape((deep, rows, K)),
        numbers(table[CHART.floor] + each, times * K, DOUBLE).reshape((times, K)),
        numbers(lost_at + 8 * b * (K + 1), K + 1, DOUBLE),
    )


@maker
def adjoint_at(at, b, kind):
    """The `Adjoint` of one sequence of a batch."""
    table, wide = adjoint_table(at), width_of(kind)
    size, ends = table[ADJOINT.columns_size], table[ADJOINT.alpha_size]
    return Adjoint(
        numbers(table[ADJOINT.columns] + b * size * wide, size, kind),
        numbers(table[ADJOINT.alpha] + b * ends * wide, ends, kind),
    )


@maker
def later_at(at, b, shape, kind):
    """The `Later` of one sequence of a batch."""
    table, wide = adjoint_table(at), width_of(kind)
    Q = shape.states
    K = Q * shape.symbols
    back, used = table[ADJOINT.back_size], table[ADJOINT.used_size]
    return Later(
        numbers(table[ADJOINT.wreplace] + 8 * b * K * K, K * K, DOUBLE),
        numbers(table[ADJOINT.wpop] + b * K * Q * wide, K * Q, kind),
        numbers(table[ADJOINT.back] + b * back * wide, back, kind),
        numbers(table[ADJOINT.used] + b * used * wide, used, kind),
        table[ADJOINT.begin],
        table[ADJOINT.end],
        table[ADJOINT.older] != 0,
    )


@entry
def forward(kind, at, lo, hi):
    """Sequences lo .. hi - 1 of a batch: the steps of a `StepTable`.

    Args:
        kind: a number of the charts' dtype.
        at: the address of the table.
    """
    table = step_table(at)
    start, steps, net = table[STEP.start], table[STEP.steps], table[STEP.controller]
    shape, limit = shape_at(table[STEP.chart]), numbers(table[STEP.limit], 1, DOUBLE)[0]
    work = make_work(shape, start + steps + 1, numbers(table[STEP.reading], 1, kind))
    ok, layers = numbers(table[STEP.flags], hi, np.uint8(0)), layers_at(net, kind)
    outputs = table[STEP.actions], table[STEP.reading], table[STEP.attention]
    for b in range(lo, hi):
        if net != 0:
            drive(net, b, layers, table[STEP.actions], kind)
        ok[b] = _forward(
            kind, table[STEP.chart], table[STEP.lost], b, start, steps, outputs, limit, shape, work
        )
        if ok[b] == UNTRUSTED:
            table[STEP.untrusted] = 1


@maker
def _forward(
    kind, at, lost_at, b, start, steps, outputs, limit, shape, work
):  # fmt: skip
    actions_at, reading_at, attention_at = outputs
    Q, K = shape.states, shape.states * shape.symbols
    A, width = 2 * K * K + K * Q, start + steps + 1
    strict = start < 0  # False, but not a constant: a literal would compile `forward_step` once more
    own = past_at(at, lost_at, b, kind)
    if start == 0:
        begin(shape, own, work)
    actions = numbers(actions_at + b * steps * A * width_of(kind), steps * A, kind)
    reading = numbers(reading_at + b * steps * K * width_of(kind), steps * K, kind)
    fill(reading, 0, reading.size, 0)
    done = 0
    for n in range(steps if own.lost[0] < math.inf else 0):
        t = start + n + 1
        given = actions[n * A : n * A + A]
        if has_invalid_weight(given):
            own.lost[0] = math.nan
            break
        push, replace, pop = split(shape, given)
        if not forward_step(shape, own, t, push, replace, pop, work, limit, strict):
            own.lost[0] = math.inf
            break
        probabilities(own, t, reading[n * K : n * K + K])
        if attention_at != 0:
            place = attention_at + (b * steps + n) * K * width * width_of(kind)
            attend(shape, own, t, numbers(place, K * width, kind).reshape((K, width)))
        done = n + 1
    if math.isnan(own.lost[0]):
        fill(reading, done * K, reading.size, math.nan)
        if attention_at != 0:
            size = steps * K * width
            rest = numbers(attention_at + b * size * width_of(kind), size, kind)
            fill(rest, done * K * width, size, math.nan)
        return INVALID
    return TRUSTED if own.lost[0] < math.inf else UNTRUSTED


@entry
def backward(kind, at, lo, hi):
    """The gradient of `forward`, after that of all later steps of the same charts.

    The `AdjointTable` holds what those have left, and room for what this call leaves for earlier ones. A
    sequence that is invalid, or gets derivatives that are not finite, is so for all earlier steps.
    """
    steps_table = step_table(at)
    start, steps, net = steps_table[STEP.start], steps_table[STEP.steps], steps_table[STEP.controller]
    chart, adjoint, grads_at = steps_table[STEP.chart], steps_table[STEP.adjoint], steps_table[STEP.grads]
    shape, table = shape_at(chart), adjoint_table(adjoint)
    work = make_work(shape, table[ADJOINT.end] + 1, numbers(grads_at, 1, kind))
    ok = numbers(steps_table[STEP.flags], hi, np.uint8(0))
    invalid = numbers(table[ADJOINT.invalid], hi, np.uint8(0))
    K = shape.states * shape.symbols
    room = work, np.zeros(K), np.zeros((0, 0), work.wpop.dtype), np.zeros(K, work.wpop.dtype)
    given = (
        steps_table[STEP.reading], steps_table[STEP.attention],
        steps_table[STEP.grad_reading], steps_table[STEP.grad_attention],
    )  # fmt: skip
    layers = layers_at(net, kind)
    for b in range(lo, hi):
        size = steps * K * (2 * K + shape.states)
        grads = numbers(grads_at + b * size * width_of(kind), size, kind)
        if ok[b] == UNTRUSTED:
            fill(grads, 0, size, 0)
            forget_use(shape, later_at(adjoint, b, shape, kind), start + 1, start + steps)
            continue  # whoever has a controller does not use such results
        if ok[b] == INVALID or _out_of_bounds(kind, b, start, steps, K, given[2], given[3]):
            invalid[b] = 1
        if invalid[b]:
            fill(grads, 0, size, math.nan)
        else:
            _backward(
                kind, chart, adjoint, b, start, steps, steps_table[STEP.actions], given, grads_at, shape, room
            )
        if net != 0:
            drive_backward(net, b, layers, grads_at, kind)


@maker
def _out_of_bounds(kind, b, start, steps, K, grad_reading_at, grad_attention_at):
    """Whether a derivative that is given for a sequence is not finite."""
    place, width, found = b * steps * K * width_of(kind), start + steps + 1, False
    if grad_reading_at != 0:
        found |= not_finite(numbers(grad_reading_at + place, steps * K, kind))
    if grad_attention_at != 0:
        found |= not_finite(numbers(grad_attention_at + place * width, steps * K * width, kind))
    return found


@maker
def _backward(kind, at, adjoint, b, start, steps, actions_at, outputs, grads_at, shape, room):
    work, grad_alpha, none, no_reading = room
    reading_at, attention_at, grad_reading_at, grad_attention_at = outputs
    Q, K = shape.states, shape.states * shape.symbols
    A, width = 2 * K * K + K * Q, start + steps + 1
    own = past_at(at, at, b, kind)  # the mass lost is of no interest here
    back = adjoint_at(adjoint, b, kind)
    later = later_at(adjoint, b, shape, kind)
    for n in range(steps - 1, -1, -1):
        place = (b * steps + n) * width_of(kind)
        shown = numbers(reading_at + place * K, K, kind)
        given, att, gatt = no_reading, none, none
        if grad_reading_at != 0:
            given = numbers(grad_reading_at + place * K, K, kind)
        if grad_attention_at != 0:
            att = numbers(attention_at + place * K * width, K * width, kind).reshape((K, width))
            gatt = numbers(grad_attention_at + place * K * width, K * width, kind).reshape((K, width))
        reading_gradient(shown, given, att, gatt, grad_alpha)
        push, replace, pop = split(shape, numbers(actions_at + place * A, A, kind))
        written = split(shape, numbers(grads_at + place * A, A, kind))
        t = start + n + 1
        backward_step(shape, own, back, later, t, push, replace, pop, grad_alpha, gatt, written, work)


@entry
def finish(kind, at, adjoint, lo, hi):
    """After the first step's gradient: the derivatives of the charts before it are complete."""
    shape = shape_at(at)
    table = adjoint_table(adjoint)
    work = make_work(shape, table[ADJOINT.end] + 1, numbers(table[ADJOINT.columns], 1, kind))
    invalid = numbers(table[ADJOINT.invalid], hi, np.uint8(0))
    for b in range(lo, hi):
        if invalid[b]:
            continue
        later = later_at(adjoint, b, shape, kind)
        gather(shape, adjoint_at(adjoint, b, kind), later, table[ADJOINT.begin], work)
