"""Compiled products of small vectors and matrices, and the layer that drives a stack."""

import numba
import numpy as np

from ndstack.kernels import cache  # noqa: F401 - compiled code is as new as its sources

_compiled = numba.njit(cache=True, nogil=True, fastmath={"contract"})
_summing = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})


@_summing
def dot(a, b):  # type: ignore[no-untyped-def]
    """sum_j a[j] b[j]; b may be longer."""
    total = a.dtype.type(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@_compiled
def add_scaled(factor, values, result):  # type: ignore[no-untyped-def]
    """result += factor values; `values` may be longer."""
    for j in range(result.size):
        result[j] += factor * values[j]


@_compiled
def add_product(vector, matrix, result):  # type: ignore[no-untyped-def]
    """result += vector matrix, of shapes [K], [K, J], [J]."""
    for k in range(vector.size):
        add_scaled(vector[k], matrix[k], result)


@_compiled
def layer(hidden, stride, weight, bias, controls):  # type: ignore[no-untyped-def]
    """controls = bias + weight hidden, for each row of a batch.

    Shapes, all flat: hidden [B, H] with a stride between rows, weight [C, H], bias [C], controls
    [B, C].
    """
    size = bias.size
    units = weight.size // size
    columns = np.empty((units, size), weight.dtype)
    for c in range(size):
        columns[:, c] = weight[c * units : (c + 1) * units]
    for b in range(controls.size // size):
        row = controls[b * size : (b + 1) * size]
        row[:] = bias
        add_product(hidden[b * stride : b * stride + units], columns, row)


@_compiled
def layer_backward(  # type: ignore[no-untyped-def]
    hidden, stride, weight, grad_controls, grad_hidden, grad_weight, grad_bias
):
    """The adjoint of `layer`; the derivatives, flat too, are overwritten."""
    size = grad_bias.size
    units = weight.size // size
    rows, grad_rows = weight.reshape(size, units), grad_weight.reshape(size, units)
    grad_hidden[:] = 0
    grad_weight[:] = 0
    grad_bias[:] = 0
    for b in range(grad_controls.size // size):
        own, grad_own = hidden[b * stride :], grad_hidden[b * units :]
        for c in range(size):
            grad, row, grad_row = grad_controls[b * size + c], rows[c], grad_rows[c]
            grad_bias[c] += grad
            for k in range(units):
                grad_own[k] += grad * row[k]
                grad_row[k] += grad * own[k]
