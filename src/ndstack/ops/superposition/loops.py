# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of the superposition stack (section 3.3.2), used by `cpu`.

A stack of height h over vectors of size m is flat, h*m numbers, top first: number f of a cell has
the same number of the cell above at f - m and of the cell below at f + m. Weights are ordered
(push, noop, pop); where actions are logits, the weights are their softmax.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler, internal
from ndstack.ops.runtime.exponentials import sigmoid_each
from ndstack.ops.runtime.products import add_scaled, copy, dot

_compiled = compiler(nogil=True)
_internal = internal(nogil=True, _nrt=False)
_summing = internal(nogil=True, _nrt=False, fastmath={"reassoc", "contract", "nsz"})


@_internal
def softmax(logits, weights):
    """The weights of push, no-op and pop from their logits."""
    largest = max(logits[0], max(logits[1], logits[2]))
    for a in range(3):
        weights[a] = np.exp(logits[a] - largest)
    total = weights[0] + weights[1] + weights[2]
    for a in range(3):
        weights[a] /= total


@_internal
def softmax_backward(weights, grad):
    """Turn the derivative with respect to the weights into that with respect to the logits, in place."""
    mean = weights[0] * grad[0] + weights[1] * grad[1] + weights[2] * grad[2]
    for a in range(3):
        grad[a] = weights[a] * (grad[a] - mean)


@_internal
def _update_cell(i, old, height, vector, weights, new):
    """Cell i of `update`, counted from 0, where a neighbour may be missing."""
    m = vector.size
    cell = new[i * m : (i + 1) * m]
    above = old[(i - 1) * m :] if i > 0 else vector
    for j in range(m):
        cell[j] = weights[0] * above[j]
    if i < height:
        add_scaled(weights[1], old[i * m :], cell)
    if i + 1 < height:
        add_scaled(weights[2], old[(i + 1) * m :], cell)


@_internal
def update(old, height, vector, weights, new, new_height):
    """V_t[i] = push V_{t-1}[i-1] + noop V_{t-1}[i] + pop V_{t-1}[i+1], where V_{t-1}[0] is v_t."""
    m = vector.size
    push, noop, pop = weights[0], weights[1], weights[2]
    full = max(min(new_height, height - 1), 1)
    inside, here, below = new[m:], old[m:], old[2 * m :]
    for f in range((full - 1) * m):
        inside[f] = push * old[f] + noop * here[f] + pop * below[f]
    _update_cell(0, old, height, vector, weights, new)
    for i in range(full, new_height):
        _update_cell(i, old, height, vector, weights, new)


@_internal
def _update_cell_backward(i, old, height, vector, weights, grad_new, new_height, grad_old, grad_weights):
    """What `update_backward` does for cell i, where a neighbour may be missing."""
    m = vector.size
    if i < new_height:
        grad = grad_new[i * m : (i + 1) * m]
        grad_weights[0] += dot(grad, old[(i - 1) * m :] if i > 0 else vector)
        if i < height:
            grad_weights[1] += dot(grad, old[i * m :])
        if i + 1 < height:
            grad_weights[2] += dot(grad, old[(i + 1) * m :])
    if i < height:
        cell = grad_old[i * m : (i + 1) * m]
        cell[:] = 0
        if i + 1 < new_height:
            add_scaled(weights[0], grad_new[(i + 1) * m :], cell)
        if i < new_height:
            add_scaled(weights[1], grad_new[i * m :], cell)
        if 0 < i <= new_height:
            add_scaled(weights[2], grad_new[(i - 1) * m :], cell)


@_summing
def update_backward(old, height, vector, weights, grad_new, new_height, grad_old, grad_vector, grad_weights):
    """The adjoint of `update`."""
    m = vector.size
    push, noop, pop = weights[0], weights[1], weights[2]
    grad_push = grad_noop = grad_pop = old.dtype.type(0)
    full = max(min(new_height, height) - 1, 1)
    inside, here, below = grad_old[m:], old[m:], old[2 * m :]
    grad_here, grad_below = grad_new[m:], grad_new[2 * m :]
    for f in range((full - 1) * m):
        inside[f] = push * grad_below[f] + noop * grad_here[f] + pop * grad_new[f]
        grad_push += grad_here[f] * old[f]
        grad_noop += grad_here[f] * here[f]
        grad_pop += grad_here[f] * below[f]
    grad_weights[0], grad_weights[1], grad_weights[2] = grad_push, grad_noop, grad_pop
    for j in range(m):
        grad_vector[j] = push * grad_new[j]
    _update_cell_backward(0, old, height, vector, weights, grad_new, new_height, grad_old, grad_weights)
    for i in range(full, max(new_height, height)):
        _update_cell_backward(i, old, height, vector, weights, grad_new, new_height, grad_old, grad_weights)


@_internal
def _height(t, n, start, depth, only_readings):
    """How many cells can matter after t of n steps."""
    height = min(start + t, depth)
    if only_readings:
        height = min(height, n - t + 1)
    return height


@_compiled
def scan(
    first, last, cells, actions, vectors, logits, depth, only_readings, stride,
    weights, readings, final, saved,
):  # fmt: skip
    """All steps of the rows first..last-1; each row is a stack.

    Every `stride` steps the stack is copied to `saved`, if that has any room.

    Shapes: cells [N, start*m], actions and weights [N, n, 3], vectors and readings [N, n, m],
    final [N, end*m], saved [N, ceil(n/stride), most*m] or [N, 0, 0].
    """
    n, m = vectors.shape[1:]
    start = cells.shape[1] // m
    size = (min(start + n, depth) + 1) * m
    old = np.empty(size, cells.dtype)
    new = np.empty(size, cells.dtype)
    for row in range(first, last):
        height = _height(0, n, start, depth, only_readings)
        copy(cells[row], old[: height * m])
        for t in range(n):
            if t % stride == 0 and saved.shape[1] > 0:
                copy(old, saved[row, t // stride, : height * m])
            if logits:
                softmax(actions[row, t], weights[row, t])
            else:
                weights[row, t] = actions[row, t]
            new_height = _height(t + 1, n, start, depth, only_readings)
            update(old, height, vectors[row, t], weights[row, t], new, new_height)
            old, new, height = new, old, new_height
            copy(old, readings[row, t])
        final[row] = old[: final.shape[1]]


@_compiled
def scan_backward(
    first, last, weights, vectors, logits, start, depth, only_readings, stride, saved,
    grad_readings, grad_final, grad_cells, grad_actions, grad_vectors,
):  # fmt: skip
    """The adjoint of `scan`: the steps between two saved stacks are done again, then undone."""
    n, m = vectors.shape[1:]
    most = saved.shape[2]
    stacks = np.empty((stride + 1, most + m), saved.dtype)
    grad_old = np.empty(most + m, saved.dtype)
    grad_new = np.empty(most + m, saved.dtype)
    for row in range(first, last):
        grad_new[: grad_final.shape[1]] = grad_final[row]
        grad_new[grad_final.shape[1] :] = 0
        for part in range(saved.shape[1] - 1, -1, -1):
            begin, end = part * stride, min((part + 1) * stride, n)
            copy(saved[row, part], stacks[0, :most])
            for t in range(begin, end - 1):
                update(
                    stacks[t - begin], _height(t, n, start, depth, only_readings), vectors[row, t],
                    weights[row, t],
                    stacks[t - begin + 1], _height(t + 1, n, start, depth, only_readings),
                )  # fmt: skip
            for t in range(end - 1, begin - 1, -1):
                for j in range(m):
                    grad_new[j] += grad_readings[row, t, j]
                update_backward(
                    stacks[t - begin], _height(t, n, start, depth, only_readings), vectors[row, t],
                    weights[row, t],
                    grad_new, _height(t + 1, n, start, depth, only_readings),
                    grad_old, grad_vectors[row, t], grad_actions[row, t],
                )  # fmt: skip
                if logits:
                    softmax_backward(weights[row, t], grad_actions[row, t])
                grad_old, grad_new = grad_new, grad_old
        kept = _height(0, n, start, depth, only_readings) * m
        grad_cells[row, :kept] = grad_new[:kept]
        grad_cells[row, kept:] = 0


@_internal
def squash_vector(values, squash, vector):
    """The vector to push, squashed or as given."""
    for j in range(vector.size):
        vector[j] = values[j]
    if squash:
        sigmoid_each(vector)
