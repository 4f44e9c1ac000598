# mypy: allow-untyped-defs, allow-untyped-calls
"""What drives stacks at one step, compiled: logits and vectors, given or computed by a layer.

`given` is seven numbers: address and stride of the logits, and of the vectors, three zeros; or address and
stride of hidden states, two zeros, the number of hidden units, and the addresses of the layer's weight
[A + m, H] and bias [A + m]. `sizes` are A and m. Arrays are flat.
"""

import numpy as np

from ndstack.ops.runtime.compiling import internal
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import add_product, copy

_compiled = internal(nogil=True, fastmath={"contract"})


@_compiled
def read_controls(kind, batch, sizes, given):
    """The logits and the vectors to push, not squashed yet, each with the stride between its rows."""
    (actions, pushed), (first, stride, second, second_stride, units, _, bias) = sizes, given
    if units == 0:
        logits = numbers(first, batch * max(stride, actions), kind)
        return (logits, stride), (numbers(second, batch * max(second_stride, pushed), kind), second_stride)
    size = actions + pushed
    hidden, weight = _hidden_and_weight(kind, batch, size, given)
    columns, controls = np.empty((units, size), weight.dtype), np.empty(batch * size, weight.dtype)
    for c in range(size):
        for k in range(units):
            columns[k, c] = weight[c * units + k]
    for b in range(batch):
        row = controls[b * size : (b + 1) * size]
        copy(numbers(bias, size, kind), row)
        add_product(hidden[b * stride : b * stride + units], columns, row)
    return (controls, size), (controls[actions:], size)


@_compiled
def make_gradients(kind, batch, sizes, given, grads):
    """Where the derivatives with respect to logits and vectors are to be written, each with its stride.

    `grads` are the addresses of the derivatives with respect to what is given.
    """
    actions, pushed = sizes
    first = numbers(grads[0], batch * actions, kind)
    if given[4] == 0:
        return (first, actions), (numbers(grads[1], batch * pushed, kind), pushed)
    controls = np.empty(batch * (actions + pushed), first.dtype)
    return (controls, actions + pushed), (controls[actions:], actions + pushed)


@_compiled
def pass_on_gradients(kind, batch, given, grad_actions, grads):
    """The derivatives with respect to hidden states and layer, from those of `make_gradients`."""
    stride, units, size = given[1], given[4], grad_actions[1]
    if units == 0:
        return
    hidden, weight = _hidden_and_weight(kind, batch, size, given)
    grad_hidden, grad_weight = numbers(grads[0], batch * units, kind), numbers(grads[1], size * units, kind)
    grad_bias = numbers(grads[2], size, kind)
    rows, grad_rows = weight.reshape(size, units), grad_weight.reshape(size, units)
    states, turned = np.empty((batch, units), weight.dtype), np.empty((size, batch), weight.dtype)
    grad_hidden[:] = 0
    grad_weight[:] = 0
    for b in range(batch):
        own = grad_actions[0][b * size : (b + 1) * size]
        add_product(own, rows, grad_hidden[b * units : (b + 1) * units])
        copy(hidden[b * stride :], states[b])
        for c in range(size):
            turned[c, b] = own[c]
    for c in range(size):
        add_product(turned[c], states, grad_rows[c])
        grad_bias[c] = turned[c].sum()


@_compiled
def _hidden_and_weight(kind, batch, size, given):
    stride, units = given[1], given[4]
    return numbers(given[0], batch * max(stride, units), kind), numbers(given[5], size * units, kind)
