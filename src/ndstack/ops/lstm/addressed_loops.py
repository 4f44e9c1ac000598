# mypy: allow-untyped-defs, allow-untyped-calls
"""One step of an LSTM that drives stacks, compiled, on memory given by addresses (see `tables`).

For single steps of stacks, which call these functions for each sequence of a batch: forward before the stack,
backward after it. An address of 0 in place of a table means that there is no controller.
"""

from __future__ import annotations

import numpy as np

from ndstack.ops.lstm.loops import controller_step, controller_step_backward
from ndstack.ops.lstm.tables import CONTROLLER
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import add_scaled, copy, fill
from ndstack.ops.runtime.simd import kernel, maker

INTEGER = np.int64(0)


@maker
def _row(at, b, size, kind):
    """The b-th row of a matrix without gaps."""
    return numbers(at + b * size * numbers(0, 0, kind).itemsize, size, kind)


@kernel
def _turn(matrix, stride, result):
    """The matrix [rows, columns] into a result [columns, rows]; its rows are a stride apart."""
    columns, rows = result.shape
    for j in range(rows):
        for k in range(columns):
            result[k, j] = matrix[j * stride + k]


@maker
def _matrix(at, stride, rows, columns, kind):
    """All numbers from the first to the last of a matrix [rows, columns] at an address."""
    return numbers(at, (rows - 1) * stride + columns if rows > 0 else 0, kind)


@maker
def layers_at(at, kind):
    """The weights of a controller as `controller_step` takes them."""
    table = numbers(at, len(CONTROLLER) if at != 0 else 0, INTEGER)
    units = reading = controls = 0
    places = np.zeros(len(CONTROLLER), np.int64)
    if at != 0:
        copy(table, places)
        units, reading = places[CONTROLLER.units], places[CONTROLLER.reading_size]
        controls = places[CONTROLLER.control_size]
    bias = numbers(places[CONTROLLER.control_bias], controls, kind)
    read, control = (
        np.empty((reading + units, 4 * units), bias.dtype),
        np.empty((units, controls), bias.dtype),
    )
    stride = places[CONTROLLER.by_reading_stride]
    _turn(_matrix(places[CONTROLLER.by_reading], stride, 4 * units, reading, kind), stride, read[:reading])
    stride = places[CONTROLLER.by_hidden_stride]
    _turn(_matrix(places[CONTROLLER.by_hidden], stride, 4 * units, units, kind), stride, read[reading:])
    stride = places[CONTROLLER.by_control_stride]
    _turn(_matrix(places[CONTROLLER.by_control], stride, controls, units, kind), stride, control)
    return read, control, bias


@maker
def drive(at, b, layers, actions_at, kind):
    """One step of the controller of sequence b: new memory, new hidden state, and the controls."""
    table = numbers(at, len(CONTROLLER), INTEGER)
    H, R, C = table[CONTROLLER.units], table[CONTROLLER.reading_size], table[CONTROLLER.control_size]
    wide = numbers(0, 0, kind).itemsize
    added = numbers(table[CONTROLLER.added] + b * table[CONTROLLER.added_stride] * wide, 4 * H, kind)
    reading = _row(table[CONTROLLER.reading], b, R, kind)
    before = _row(table[CONTROLLER.hidden], b, H, kind), _row(table[CONTROLLER.memory], b, H, kind), reading
    controller_step(
        b - b, layers, before, added.reshape((1, 4 * H)), np.empty((1, R + H), reading.dtype),
        _row(table[CONTROLLER.gates], b, 4 * H, kind).reshape((1, 4 * H)),
        _row(table[CONTROLLER.new_memory], b, H, kind).reshape((1, H)),
        _row(table[CONTROLLER.new_hidden], b, H, kind).reshape((1, H)),
        reading.reshape((1, R)), _row(actions_at, b, C, kind),
    )  # fmt: skip


@maker
def drive_backward(at, b, layers, grads_at, kind):
    """The adjoint of `drive`.

    Args:
        grads_at: [B, C], what the stacks say about the controls; what else is given is added to it.
    """
    table = numbers(at, len(CONTROLLER), INTEGER)
    H, R, C = table[CONTROLLER.units], table[CONTROLLER.reading_size], table[CONTROLLER.control_size]
    grads = _row(grads_at, b, C, kind)
    if table[CONTROLLER.grad_given_controls] != 0:
        add_scaled(grads.dtype.type(1), _row(table[CONTROLLER.grad_given_controls], b, C, kind), grads)
    hidden, memory = (
        _row(table[CONTROLLER.grad_hidden], b, H, kind),
        _row(table[CONTROLLER.grad_memory], b, H, kind),
    )
    fill(hidden, 0, H, 0)
    fill(memory, 0, H, 0)
    if table[CONTROLLER.grad_new_memory] != 0:
        copy(_row(table[CONTROLLER.grad_new_memory], b, H, kind), memory)
    given = np.zeros((1, H), grads.dtype)
    if table[CONTROLLER.grad_new_hidden] != 0:
        copy(_row(table[CONTROLLER.grad_new_hidden], b, H, kind), given[0])
    controller_step_backward(
        b - b, layers[:2], _row(table[CONTROLLER.memory], b, H, kind),
        _row(table[CONTROLLER.gates], b, 4 * H, kind).reshape((1, 4 * H)),
        _row(table[CONTROLLER.new_memory], b, H, kind).reshape((1, H)),
        given, grads.reshape((1, C)),
        _row(table[CONTROLLER.grad_gates], b, 4 * H, kind).reshape((1, 4 * H)),
        (hidden, memory, _row(table[CONTROLLER.grad_reading], b, R, kind)),
    )  # fmt: skip
