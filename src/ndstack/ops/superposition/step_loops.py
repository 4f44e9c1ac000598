# mypy: allow-untyped-defs, allow-untyped-calls
"""One compiled step of superposition stacks (section 3.3.2), from logits or from a hidden state.

Tensors come as addresses; `superposition_cpu` makes these functions torch operations.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler, internal
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import add_scaled, copy, layer, layer_backward
from ndstack.ops.superposition.loops import (
    softmax,
    softmax_backward,
    squash_vector,
    update,
    update_backward,
)

_compiled = compiler(nogil=True)
_internal = internal(nogil=True)


@_internal
def _step(shape, squash, cells, actions, pushed, reading, new):
    """One step from logits; arrays are flat, `actions` and `pushed` come with a stride."""
    batch, stacks, height, new_height, m = shape
    size, new_size = height * m, new_height * m
    weights, vector = np.empty(3, cells.dtype), np.empty(m, cells.dtype)
    for b in range(batch):
        for g in range(stacks):
            row = b * stacks + g
            softmax(actions[0][b * actions[1] + 3 * g :], weights)
            squash_vector(pushed[0][b * pushed[1] + m * g :], squash, vector)
            top = new[row * new_size : (row + 1) * new_size]
            update(cells[row * size :], height, vector, weights, top, new_height)
            copy(top, reading[row * m : (row + 1) * m])


@_internal
def _step_backward(
    shape, squash, cells, actions, pushed, grad_reading, grad_new,
    grad_cells, grad_actions, grad_pushed,
):  # fmt: skip
    """The adjoint of `_step`; an empty array in place of a derivative means zeros."""
    batch, stacks, height, new_height, m = shape
    size, new_size = height * m, new_height * m
    weights, vector = np.empty(3, cells.dtype), np.empty(m, cells.dtype)
    grad = np.zeros(new_size, cells.dtype)
    for b in range(batch):
        for g in range(stacks):
            row = b * stacks + g
            softmax(actions[0][b * actions[1] + 3 * g :], weights)
            squash_vector(pushed[0][b * pushed[1] + m * g :], squash, vector)
            if grad_new.size > 0:
                copy(grad_new[row * new_size :], grad)
            else:
                grad[:] = 0
            if grad_reading[0].size > 0:
                add_scaled(1, grad_reading[0][b * grad_reading[1] + m * g :], grad[:m])
            grad_weights = grad_actions[0][b * grad_actions[1] + 3 * g :]
            grad_vector = grad_pushed[0][b * grad_pushed[1] + m * g :]
            update_backward(
                cells[row * size :], height, vector, weights, grad, new_height,
                grad_cells[row * size :], grad_vector, grad_weights,
            )  # fmt: skip
            softmax_backward(weights, grad_weights)
            if squash:
                for j in range(m):
                    grad_vector[j] *= vector[j] * (1 - vector[j])


@_compiled
def step(
    kind, batch, stacks, height, new_height, m, cells_at,
    actions_at, actions_stride, pushed_at, pushed_stride, reading_at, new_at,
):  # fmt: skip
    """One step from logits, on tensors given by their addresses.

    Shapes: cells [batch, stacks, height, m], actions [batch, 3*stacks] and pushed
    [batch, stacks*m], both with a stride between rows, reading [batch, stacks*m], new
    [batch, stacks, new_height, m].
    """
    rows = batch * stacks
    _step(
        (batch, stacks, height, new_height, m), False, numbers(cells_at, rows * height * m, kind),
        (numbers(actions_at, batch * max(actions_stride, 3 * stacks), kind), actions_stride),
        (numbers(pushed_at, batch * max(pushed_stride, stacks * m), kind), pushed_stride),
        numbers(reading_at, rows * m, kind), numbers(new_at, rows * new_height * m, kind),
    )  # fmt: skip


@_compiled
def step_backward(
    kind, batch, stacks, height, new_height, m, cells_at,
    actions_at, actions_stride, pushed_at, pushed_stride,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_cells_at, grad_actions_at, grad_pushed_at,
):  # fmt: skip
    """The adjoint of `step`; an address of 0 in place of a derivative means zeros."""
    rows = batch * stacks
    given = batch * max(grad_reading_stride, stacks * m) if grad_reading_at != 0 else 0
    carried = rows * new_height * m if grad_new_at != 0 else 0
    _step_backward(
        (batch, stacks, height, new_height, m), False, numbers(cells_at, rows * height * m, kind),
        (numbers(actions_at, batch * max(actions_stride, 3 * stacks), kind), actions_stride),
        (numbers(pushed_at, batch * max(pushed_stride, stacks * m), kind), pushed_stride),
        (numbers(grad_reading_at, given, kind), grad_reading_stride),
        numbers(grad_new_at, carried, kind), numbers(grad_cells_at, rows * height * m, kind),
        (numbers(grad_actions_at, rows * 3, kind), 3 * stacks),
        (numbers(grad_pushed_at, rows * m, kind), stacks * m),
    )  # fmt: skip


@_compiled
def step_from_hidden(
    kind, batch, stacks, height, new_height, m, cells_at,
    hidden_at, hidden_stride, units, weight_at, bias_at, reading_at, new_at,
):  # fmt: skip
    """One step from a hidden state [batch, units], with the layer that makes it logits and vector.

    As for `step`; weight [3*stacks + stacks*m, units], bias alike. Sigmoids are pushed.
    """
    rows, size = batch * stacks, (3 + m) * stacks
    bias = numbers(bias_at, size, kind)
    hidden = numbers(hidden_at, batch * max(hidden_stride, units), kind)
    controls = np.empty(batch * size, bias.dtype)
    layer(hidden, hidden_stride, numbers(weight_at, size * units, kind), bias, controls)
    _step(
        (batch, stacks, height, new_height, m), True, numbers(cells_at, rows * height * m, kind),
        (controls, size), (controls[3 * stacks :], size),
        numbers(reading_at, rows * m, kind), numbers(new_at, rows * new_height * m, kind),
    )  # fmt: skip


@_compiled
def step_from_hidden_backward(
    kind, batch, stacks, height, new_height, m, cells_at,
    hidden_at, hidden_stride, units, weight_at, bias_at,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_cells_at, grad_hidden_at, grad_weight_at, grad_bias_at,
):  # fmt: skip
    """The adjoint of `step_from_hidden`; an address of 0 in place of a derivative means zeros."""
    rows, size = batch * stacks, (3 + m) * stacks
    bias, weight = numbers(bias_at, size, kind), numbers(weight_at, size * units, kind)
    hidden = numbers(hidden_at, batch * max(hidden_stride, units), kind)
    controls, grad_controls = np.empty(batch * size, bias.dtype), np.empty(batch * size, bias.dtype)
    layer(hidden, hidden_stride, weight, bias, controls)
    given = batch * max(grad_reading_stride, stacks * m) if grad_reading_at != 0 else 0
    carried = rows * new_height * m if grad_new_at != 0 else 0
    _step_backward(
        (batch, stacks, height, new_height, m), True, numbers(cells_at, rows * height * m, kind),
        (controls, size), (controls[3 * stacks :], size),
        (numbers(grad_reading_at, given, kind), grad_reading_stride),
        numbers(grad_new_at, carried, kind), numbers(grad_cells_at, rows * height * m, kind),
        (grad_controls, size), (grad_controls[3 * stacks :], size),
    )  # fmt: skip
    layer_backward(
        hidden, hidden_stride, weight, grad_controls, numbers(grad_hidden_at, batch * units, kind),
        numbers(grad_weight_at, size * units, kind), numbers(grad_bias_at, size, kind),
    )  # fmt: skip
