# mypy: allow-untyped-defs, allow-untyped-calls
"""One compiled step of stratification stacks (section 3.3.1), on tensors given by their addresses.

`cpu` makes torch operations of these functions. `drive_loops` says what drives a step; vectors that a layer
computes go through tanh.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler
from ndstack.ops.runtime.drive_loops import make_gradients, pass_on_gradients, read_controls
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import copy
from ndstack.ops.stratification.loops import (
    advance,
    begin,
    finite,
    load,
    pop_backward,
    pop_thickness,
    read_backward,
    sigmoid,
    squash_vector,
    unload,
)

_compiled = compiler(nogil=True)


@_compiled
def step(
    kind, batch, k, m, elements_at,
    first_at, first_stride, second_at, second_stride, units, weight_at, bias_at,
    reading_at, new_at,
):  # fmt: skip
    """One step.

    Shapes: elements [batch, k, 1+m], each a strength and a vector, logits [batch, 2], vectors and reading
    [batch, m], new [batch, k+1, 1+m].
    """
    size, new_size = k * (1 + m), (k + 1) * (1 + m)
    given = first_at, first_stride, second_at, second_stride, units, weight_at, bias_at
    actions, pushed = read_controls(kind, batch, (2, m), given)
    all_elements, readings = numbers(elements_at, batch * size, kind), numbers(reading_at, batch * m, kind)
    all_new = numbers(new_at, batch * new_size, kind)
    parent, strength = np.empty(k + 1, np.int32), np.empty(k + 1, readings.dtype)
    base, weights = np.empty(m, readings.dtype), np.empty(2, readings.dtype)
    for b in range(batch):
        elements = all_elements[b * size : (b + 1) * size]
        new = all_new[b * new_size : (b + 1) * new_size].reshape(k + 1, 1 + m)
        copy(elements, all_new[b * new_size : b * new_size + size])
        clean = begin(elements[:: 1 + m], new[:, 1:], base)
        top = load(elements[:: 1 + m], parent, strength)
        squash_vector(pushed[0][b * pushed[1] :], units > 0, new[k, 1:])
        for a in range(2):
            weights[a] = sigmoid(actions[0][b * actions[1] + a])
        reading = readings[b * m : (b + 1) * m]
        _, meant = advance(k, top, weights, parent, strength, new[:, 1:], base, reading)
        unload(k, parent, strength, clean and meant, new[:, 0])


@_compiled
def step_backward(
    kind, batch, k, m, elements_at,
    first_at, first_stride, second_at, second_stride, units, weight_at, bias_at, new_at,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_elements_at, grad_first_at, grad_second_at, grad_third_at,
):  # fmt: skip
    """The adjoint of `step`; an address of 0 in place of a derivative means zeros."""
    size, new_size = k * (1 + m), (k + 1) * (1 + m)
    given = first_at, first_stride, second_at, second_stride, units, weight_at, bias_at
    grads = grad_first_at, grad_second_at, grad_third_at
    actions, _ = read_controls(kind, batch, (2, m), given)
    grad_actions, grad_pushed = make_gradients(kind, batch, (2, m), given, grads)
    all_elements, all_new = numbers(elements_at, batch * size, kind), numbers(new_at, batch * new_size, kind)
    grad_elements = numbers(grad_elements_at, batch * size, kind)
    grad_new = numbers(grad_new_at, batch * new_size if grad_new_at != 0 else 0, kind)
    shown = batch * max(grad_reading_stride, m) if grad_reading_at != 0 else 0
    grad_readings = numbers(grad_reading_at, shown, kind)
    parent, strength = np.empty(k + 1, np.int32), np.empty(k + 1, all_new.dtype)
    flat = np.zeros(new_size, all_new.dtype)
    grad = flat.reshape(k + 1, 1 + m)
    grad_strength, grad_vectors = grad[:, 0], grad[:, 1:]
    for b in range(batch):
        of_actions, of_pushed = b * grad_actions[1], b * grad_pushed[1]
        if grad_new.size > 0:
            copy(grad_new[b * new_size :], flat)
        else:
            flat[:] = 0
        new = all_new[b * new_size : (b + 1) * new_size].reshape(k + 1, 1 + m)
        if not finite(all_new[b * new_size : (b + 1) * new_size]):
            grad_actions[0][of_actions : of_actions + 2] = np.nan
            grad_pushed[0][of_pushed : of_pushed + m] = np.nan
            grad_elements[b * size : (b + 1) * size] = np.nan
            continue
        top = load(all_elements[b * size : (b + 1) * size : 1 + m], parent, strength)
        push, pop = new[k, 0], sigmoid(actions[0][b * actions[1] + 1])
        parent[k], before = pop_thickness(pop, top, parent, strength)
        strength[k] = push
        if grad_readings.size > 0:
            grad_reading = grad_readings[b * grad_reading_stride : b * grad_reading_stride + m]
            read_backward(k, parent, strength, new[:, 1:], grad_reading, grad_strength, grad_vectors)
        grad_push = grad_strength[k]
        grad_pop = pop_backward(pop, k - 1, parent[k], before, parent, strength, grad_strength)
        grad_actions[0][of_actions] = grad_push * push * (1 - push)
        grad_actions[0][of_actions + 1] = grad_pop * pop * (1 - pop)
        for j in range(m):
            slope = 1 - new[k, 1 + j] * new[k, 1 + j] if units > 0 else 1
            grad_pushed[0][of_pushed + j] = grad_vectors[k, j] * slope
        for i in range(k - 1):
            if strength[i] == 0:
                grad_strength[i] = 0
        copy(flat, grad_elements[b * size : (b + 1) * size])
    pass_on_gradients(kind, batch, given, grad_actions, grads)
