# mypy: allow-untyped-defs, allow-untyped-calls
"""One compiled step of stratification stack (section 3.3.1), from logits or from a hidden state.

Tensors come as addresses; `stratification_cpu` makes these functions torch operations.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler, internal
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import copy, layer, layer_backward
from ndstack.ops.stratification.loops import (
    _add_to_base,
    _begin,
    _finite,
    _load,
    _pop,
    _pop_backward,
    _read,
    _read_backward,
    _sigmoid,
    _squashed,
    _unload,
)

_compiled = compiler(nogil=True)
_internal = internal(nogil=True)


@_internal
def _step(shape, squash, all_elements, actions, pushed, readings, all_new):
    """One step from logits; arrays are flat, `actions` and `pushed` come with a stride."""
    batch, k, m = shape
    size, new_size = k * (1 + m), (k + 1) * (1 + m)
    parent, strength = np.empty(k + 1, np.int32), np.empty(k + 1, readings.dtype)
    base = np.empty(m, readings.dtype)
    for b in range(batch):
        elements = all_elements[b * size : (b + 1) * size]
        new = all_new[b * new_size : (b + 1) * new_size].reshape(k + 1, 1 + m)
        copy(elements, all_new[b * new_size : b * new_size + size])
        clean = _begin(elements[:: 1 + m], new[:, 1:], base)
        top = _load(elements[:: 1 + m], parent, strength)
        pop = _sigmoid(actions[0][b * actions[1] + 1])
        parent[k], _ = _pop(pop, top, parent, strength)
        strength[k] = _sigmoid(actions[0][b * actions[1]])
        _squashed(pushed[0][b * pushed[1] :], squash, new[k, 1:])
        _add_to_base(new[k, 1:], base)
        if np.isnan(pop + strength[k]):
            clean = False
            base[:] = np.nan
        _read(k, parent, strength, new[:, 1:], base, readings[b * m : (b + 1) * m])
        _unload(k, parent, strength, clean, new[:, 0])


@_internal
def _step_backward(
    shape, squash, all_elements, actions, all_new, grad_readings, grad_new,
    grad_elements, grad_actions, grad_pushed,
):  # fmt: skip
    """The adjoint of `_step`; an empty array in place of a derivative means zeros."""
    batch, k, m = shape
    size, new_size = k * (1 + m), (k + 1) * (1 + m)
    parent, strength = np.empty(k + 1, np.int32), np.empty(k + 1, all_new.dtype)
    flat = np.zeros(new_size, all_new.dtype)
    grad = flat.reshape(k + 1, 1 + m)
    grad_strength, grad_vectors = grad[:, 0], grad[:, 1:]
    for b in range(batch):
        if grad_new.size > 0:
            copy(grad_new[b * new_size :], flat)
        else:
            flat[:] = 0
        new = all_new[b * new_size : (b + 1) * new_size].reshape(k + 1, 1 + m)
        if not _finite(all_new[b * new_size : (b + 1) * new_size]):
            grad_actions[0][b * grad_actions[1] : b * grad_actions[1] + 2] = np.nan
            grad_pushed[0][b * grad_pushed[1] : b * grad_pushed[1] + m] = np.nan
            grad_elements[b * size : (b + 1) * size] = np.nan
            continue
        top = _load(all_elements[b * size : (b + 1) * size : 1 + m], parent, strength)
        push, pop = new[k, 0], _sigmoid(actions[0][b * actions[1] + 1])
        parent[k], before = _pop(pop, top, parent, strength)
        strength[k] = push
        if grad_readings[0].size > 0:
            at = b * grad_readings[1]
            grad_reading = grad_readings[0][at : at + m]
            _read_backward(k, parent, strength, new[:, 1:], grad_reading, grad_strength, grad_vectors)
        grad_push = grad_strength[k]
        grad_pop = _pop_backward(pop, k - 1, parent[k], before, parent, strength, grad_strength)
        grad_actions[0][b * grad_actions[1]] = grad_push * push * (1 - push)
        grad_actions[0][b * grad_actions[1] + 1] = grad_pop * pop * (1 - pop)
        for j in range(m):
            slope = 1 - new[k, 1 + j] * new[k, 1 + j] if squash else 1
            grad_pushed[0][b * grad_pushed[1] + j] = grad_vectors[k, j] * slope
        for i in range(k - 1):
            if strength[i] == 0:
                grad_strength[i] = 0
        copy(flat, grad_elements[b * size : (b + 1) * size])


@_compiled
def step(
    kind, batch, k, m, elements_at,
    actions_at, actions_stride, pushed_at, pushed_stride, reading_at, new_at,
):  # fmt: skip
    """One step from logits, on tensors given by their addresses.

    Shapes: elements [batch, k, 1+m], each a strength and a vector; actions [batch, 2] and pushed
    [batch, m], both with a stride between rows; reading [batch, m], new [batch, k+1, 1+m].
    """
    _step(
        (batch, k, m), False, numbers(elements_at, batch * k * (1 + m), kind),
        (numbers(actions_at, batch * max(actions_stride, 2), kind), actions_stride),
        (numbers(pushed_at, batch * max(pushed_stride, m), kind), pushed_stride),
        numbers(reading_at, batch * m, kind), numbers(new_at, batch * (k + 1) * (1 + m), kind),
    )  # fmt: skip


@_compiled
def step_backward(
    kind, batch, k, m, elements_at, actions_at, actions_stride, new_at,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_elements_at, grad_actions_at, grad_pushed_at,
):  # fmt: skip
    """The adjoint of `step`; an address of 0 in place of a derivative means zeros."""
    size, new_size = batch * k * (1 + m), batch * (k + 1) * (1 + m)
    given = batch * max(grad_reading_stride, m) if grad_reading_at != 0 else 0
    _step_backward(
        (batch, k, m), False, numbers(elements_at, size, kind),
        (numbers(actions_at, batch * max(actions_stride, 2), kind), actions_stride),
        numbers(new_at, new_size, kind),
        (numbers(grad_reading_at, given, kind), grad_reading_stride),
        numbers(grad_new_at, new_size if grad_new_at != 0 else 0, kind),
        numbers(grad_elements_at, size, kind),
        (numbers(grad_actions_at, batch * 2, kind), 2),
        (numbers(grad_pushed_at, batch * m, kind), m),
    )  # fmt: skip


@_compiled
def step_from_hidden(
    kind, batch, k, m, elements_at,
    hidden_at, hidden_stride, units, weight_at, bias_at, reading_at, new_at,
):  # fmt: skip
    """One step from a hidden state [batch, units], with the layer that makes it logits and vector.

    As for `step`; weight [2+m, units], bias [2+m]. Hyperbolic tangents are pushed.
    """
    bias = numbers(bias_at, 2 + m, kind)
    hidden = numbers(hidden_at, batch * max(hidden_stride, units), kind)
    controls = np.empty(batch * (2 + m), bias.dtype)
    layer(hidden, hidden_stride, numbers(weight_at, (2 + m) * units, kind), bias, controls)
    _step(
        (batch, k, m), True, numbers(elements_at, batch * k * (1 + m), kind),
        (controls, 2 + m), (controls[2:], 2 + m),
        numbers(reading_at, batch * m, kind), numbers(new_at, batch * (k + 1) * (1 + m), kind),
    )  # fmt: skip


@_compiled
def step_from_hidden_backward(
    kind, batch, k, m, elements_at,
    hidden_at, hidden_stride, units, weight_at, bias_at, new_at,
    grad_reading_at, grad_reading_stride, grad_new_at,
    grad_elements_at, grad_hidden_at, grad_weight_at, grad_bias_at,
):  # fmt: skip
    """The adjoint of `step_from_hidden`; an address of 0 in place of a derivative means zeros."""
    size, new_size = batch * k * (1 + m), batch * (k + 1) * (1 + m)
    bias, weight = numbers(bias_at, 2 + m, kind), numbers(weight_at, (2 + m) * units, kind)
    hidden = numbers(hidden_at, batch * max(hidden_stride, units), kind)
    controls = np.empty(batch * (2 + m), bias.dtype)
    grad_controls = np.empty(batch * (2 + m), bias.dtype)
    layer(hidden, hidden_stride, weight, bias, controls)
    given = batch * max(grad_reading_stride, m) if grad_reading_at != 0 else 0
    _step_backward(
        (batch, k, m), True, numbers(elements_at, size, kind), (controls, 2 + m),
        numbers(new_at, new_size, kind),
        (numbers(grad_reading_at, given, kind), grad_reading_stride),
        numbers(grad_new_at, new_size if grad_new_at != 0 else 0, kind),
        numbers(grad_elements_at, size, kind),
        (grad_controls, 2 + m), (grad_controls[2:], 2 + m),
    )  # fmt: skip
    layer_backward(
        hidden, hidden_stride, weight, grad_controls, numbers(grad_hidden_at, batch * units, kind),
        numbers(grad_weight_at, (2 + m) * units, kind), numbers(grad_bias_at, 2 + m, kind),
    )  # fmt: skip
