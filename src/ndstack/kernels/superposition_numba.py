"""Compiled loops of the superposition stack (section 3.3.2), used by `superposition_cpu`.

Each function works on the rows first..last-1 of its arrays, one row a stack. A stack of height h
over vectors of size m is flat, h*m numbers, top first: number f of a cell has the same number of
the cell above at f - m and of the cell below at f + m.
"""

import numba
import numpy as np

_compiled = numba.njit(cache=True, nogil=True)
_summing = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})


@_summing
def _dot(a, b, size):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for f in range(size):
        total += a[f] * b[f]
    return total


@_compiled
def _update(old, height, vector, push, noop, pop, new, new_height):  # type: ignore[no-untyped-def]
    """V_t[i] = push V_{t-1}[i-1] + noop V_{t-1}[i] + pop V_{t-1}[i+1], where V_{t-1}[0] is v_t."""
    m = vector.size
    for f in range(m):
        new[f] = push * vector[f]
    for f in range(m, new_height * m):
        new[f] = push * old[f - m]
    for f in range(min(new_height, height) * m):
        new[f] += noop * old[f]
    for f in range(min(new_height, height - 1) * m):
        new[f] += pop * old[f + m]


@_compiled
def _update_backward(  # type: ignore[no-untyped-def]
    old, height, vector, weights, grad_new, new_height, grad_old, grad_vector, grad_weights
):
    """The adjoint of `_update`; weights are (push, noop, pop)."""
    m = vector.size
    same = min(new_height, height) * m
    below = max(min(new_height, height - 1), 0) * m
    push, noop, pop = weights[0], weights[1], weights[2]
    for f in range(m):
        grad_vector[f] = push * grad_new[f]
    for f in range(same):
        grad_old[f] = noop * grad_new[f]
    for f in range(same, height * m):
        grad_old[f] = 0
    for f in range(m, new_height * m):
        grad_old[f - m] += push * grad_new[f]
    for f in range(below):
        grad_old[f + m] += pop * grad_new[f]
    grad_weights[0] = _dot(grad_new, vector, m) + _dot(grad_new[m:], old, (new_height - 1) * m)
    grad_weights[1] = _dot(grad_new, old, same)
    grad_weights[2] = _dot(grad_new, old[m:], below)


@_compiled
def _height(t, n, start, depth, only_readings):  # type: ignore[no-untyped-def]
    """How many cells can matter after t of n steps."""
    height = min(start + t, depth)
    if only_readings:
        height = min(height, n - t + 1)
    return height


@_compiled
def scan(  # type: ignore[no-untyped-def]
    first, last, cells, weights, vectors, depth, only_readings, stride, readings, final, saved
):
    """All steps. Every `stride` steps the stack is copied to `saved`, if that has any room.

    Shapes: cells [N, start*m], weights [N, n, 3], vectors and readings [N, n, m], final
    [N, end*m], saved [N, ceil(n/stride), most*m] or [N, 0, 0].
    """
    n, m = vectors.shape[1:]
    start = cells.shape[1] // m
    size = (min(start + n, depth) + 1) * m
    old = np.empty(size, cells.dtype)
    new = np.empty(size, cells.dtype)
    for row in range(first, last):
        height = _height(0, n, start, depth, only_readings)
        old[: height * m] = cells[row, : height * m]
        for t in range(n):
            if t % stride == 0 and saved.shape[1] > 0:
                saved[row, t // stride, : height * m] = old[: height * m]
            push, noop, pop = weights[row, t, 0], weights[row, t, 1], weights[row, t, 2]
            new_height = _height(t + 1, n, start, depth, only_readings)
            _update(old, height, vectors[row, t], push, noop, pop, new, new_height)
            old, new, height = new, old, new_height
            readings[row, t] = old[:m]
        final[row] = old[: final.shape[1]]


@_compiled
def scan_backward(  # type: ignore[no-untyped-def]
    first, last, weights, vectors, start, depth, only_readings, stride, saved,
    grad_readings, grad_final, grad_cells, grad_weights, grad_vectors,
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
            stacks[0, :most] = saved[row, part]
            for t in range(begin, end - 1):
                push, noop, pop = weights[row, t, 0], weights[row, t, 1], weights[row, t, 2]
                _update(
                    stacks[t - begin], _height(t, n, start, depth, only_readings), vectors[row, t],
                    push, noop, pop,
                    stacks[t - begin + 1], _height(t + 1, n, start, depth, only_readings),
                )  # fmt: skip
            for t in range(end - 1, begin - 1, -1):
                for j in range(m):
                    grad_new[j] += grad_readings[row, t, j]
                _update_backward(
                    stacks[t - begin], _height(t, n, start, depth, only_readings), vectors[row, t],
                    weights[row, t],
                    grad_new, _height(t + 1, n, start, depth, only_readings),
                    grad_old, grad_vectors[row, t], grad_weights[row, t],
                )  # fmt: skip
                grad_old, grad_new = grad_new, grad_old
        kept = _height(0, n, start, depth, only_readings) * m
        grad_cells[row, :kept] = grad_new[:kept]
        grad_cells[row, kept:] = 0


@_compiled
def step(first, last, cells, weights, vectors, new, readings):  # type: ignore[no-untyped-def]
    """One step: cells [N, h*m], weights [N, 3], vectors and readings [N, m], new [N, h'*m]."""
    m = vectors.shape[1]
    height, new_height = cells.shape[1] // m, new.shape[1] // m
    for row in range(first, last):
        push, noop, pop = weights[row, 0], weights[row, 1], weights[row, 2]
        _update(cells[row], height, vectors[row], push, noop, pop, new[row], new_height)
        readings[row] = new[row, :m]


@_compiled
def step_backward(  # type: ignore[no-untyped-def]
    first, last, cells, weights, vectors, grad_new, grad_reading,
    grad_cells, grad_weights, grad_vectors,
):  # fmt: skip
    """The adjoint of `step`; `grad_new` [N, h'*m] is scratch, changed here."""
    m = vectors.shape[1]
    height, new_height = cells.shape[1] // m, grad_new.shape[1] // m
    for row in range(first, last):
        for j in range(m):
            grad_new[row, j] += grad_reading[row, j]
        _update_backward(
            cells[row], height, vectors[row], weights[row], grad_new[row], new_height,
            grad_cells[row], grad_vectors[row], grad_weights[row],
        )  # fmt: skip
