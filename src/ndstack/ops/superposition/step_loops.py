# mypy: allow-untyped-defs, allow-untyped-calls
"""One compiled step of superposition stacks (section 3.3.2), on tensors given by their addresses.

`cpu` makes torch operations of these functions. `drive_loops` says what drives a step; vectors that a layer
computes go through a sigmoid.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler
from ndstack.ops.runtime.drive_loops import make_gradients, pass_on_gradients, read_controls
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import add_scaled, copy
from ndstack.ops.superposition.loops import (
    softmax,
    softmax_backward,
    squash_vector,
    update,
    update_backward,
)

_compiled = compiler(nogil=True)


@_compiled
def step(
    kind, batch, stacks, height, new_height, m, cells_at,
    first_at, first_stride, second_at, second_stride, units, weight_at, bias_at,
    reading_at, new_at,
):  # fmt: skip
    """One step.

    Shapes: cells [batch, stacks, height, m], logits [batch, 3*stacks], vectors and reading [batch, stacks*m],
    new [batch, stacks, new_height, m].
    """
    rows, size, new_size = batch * stacks, height * m, new_height * m
    given = first_at, first_stride, second_at, second_stride, units, weight_at, bias_at
    actions, pushed = read_controls(kind, batch, (3 * stacks, stacks * m), given)
    cells, new = numbers(cells_at, rows * size, kind), numbers(new_at, rows * new_size, kind)
    reading = numbers(reading_at, rows * m, kind)
    weights, vector = np.empty(3, cells.dtype), np.empty(m, cells.dtype)
    for b in range(batch):
        for g in range(stacks):
            row = b * stacks + g
            softmax(actions[0][b * actions[1] + 3 * g :], weights)
            squash_vector(pushed[0][b * pushed[1] + m * g :], units > 0, vector)
            top = new[row * new_size : (row + 1) * new_size]
            update(cells[row * size :], height, vector, weights, top, new_height)
            copy(top, reading[row * m : (row + 1) * m])


@_compiled
def step_backward(
    kind, batch, stacks, height, new_height, m, cells_at,
    first_at, first_stride, second_at, second_stride, units, weight_at, bias_at,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_cells_at, grad_first_at, grad_second_at, grad_third_at,
):  # fmt: skip
    """The adjoint of `step`; an address of 0 in place of a derivative means zeros."""
    rows, size, new_size = batch * stacks, height * m, new_height * m
    given = first_at, first_stride, second_at, second_stride, units, weight_at, bias_at
    sizes, grads = (3 * stacks, stacks * m), (grad_first_at, grad_second_at, grad_third_at)
    actions, pushed = read_controls(kind, batch, sizes, given)
    grad_actions, grad_pushed = make_gradients(kind, batch, sizes, given, grads)
    cells, grad_cells = numbers(cells_at, rows * size, kind), numbers(grad_cells_at, rows * size, kind)
    grad_new = numbers(grad_new_at, rows * new_size if grad_new_at != 0 else 0, kind)
    shown = batch * max(grad_reading_stride, stacks * m) if grad_reading_at != 0 else 0
    grad_reading = numbers(grad_reading_at, shown, kind)
    weights, vector = np.empty(3, cells.dtype), np.empty(m, cells.dtype)
    grad = np.zeros(new_size, cells.dtype)
    for b in range(batch):
        for g in range(stacks):
            row = b * stacks + g
            softmax(actions[0][b * actions[1] + 3 * g :], weights)
            squash_vector(pushed[0][b * pushed[1] + m * g :], units > 0, vector)
            if grad_new.size > 0:
                copy(grad_new[row * new_size :], grad)
            else:
                grad[:] = 0
            if grad_reading.size > 0:
                add_scaled(1, grad_reading[b * grad_reading_stride + m * g :], grad[:m])
            grad_weights = grad_actions[0][b * grad_actions[1] + 3 * g :]
            grad_vector = grad_pushed[0][b * grad_pushed[1] + m * g :]
            update_backward(
                cells[row * size :], height, vector, weights, grad, new_height,
                grad_cells[row * size :], grad_vector, grad_weights,
            )  # fmt: skip
            softmax_backward(weights, grad_weights)
            if units > 0:
                for j in range(m):
                    grad_vector[j] *= vector[j] * (1 - vector[j])
    pass_on_gradients(kind, batch, given, grad_actions, grads)
