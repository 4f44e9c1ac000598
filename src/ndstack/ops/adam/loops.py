# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of clipping and Adam, used by `cpu`.

The numbers of all parameters are divided into parts. A table has a row for each part: the addresses of
parameter, gradient, m and v, and how many numbers they have.
"""

import math

import numpy as np

from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.simd import entry, kernel_loop

PARAMETER, GRADIENT, MEAN, SQUARE, SIZE = range(5)
COLUMNS = SIZE + 1


@kernel_loop
def sum_of_squares(values):
    """The sum of values^2, in float64."""
    total = 0.0
    for j in range(values.size):
        value = np.float64(values[j])
        total += value * value
    return total


@entry
def squares(first, last, table, kind, out):
    """out[part] = the sum of squares of gradients, for the parts first..last-1."""
    for part in range(first, last):
        out[part] = sum_of_squares(numbers(table[part, GRADIENT], table[part, SIZE], kind))


@kernel_loop
def update_part(parameter, gradient, mean, square, settings):
    """One step of Adam, as in `reference.update`, with the gradient multiplied by a factor.

    `settings` are the factor, rate / (1 - b_1^step), 1 - b_1, 1 - b_2, sqrt(1 - b_2^step) and eps.
    """
    to = parameter.dtype.type
    factor, rate, first = to(settings[0]), to(settings[1]), to(settings[2])
    second, root, eps = to(settings[3]), to(settings[4]), to(settings[5])
    for j in range(parameter.size):
        g = gradient[j] * factor
        m = mean[j] + first * (g - mean[j])
        v = square[j] + second * (g * g - square[j])
        mean[j] = m
        square[j] = v
        parameter[j] -= rate * m / (math.sqrt(v) / root + eps)


@entry
def update(first, last, table, kind, settings):
    """One step for the parts first..last-1."""
    for part in range(first, last):
        size = table[part, SIZE]
        update_part(
            numbers(table[part, PARAMETER], size, kind), numbers(table[part, GRADIENT], size, kind),
            numbers(table[part, MEAN], size, kind), numbers(table[part, SQUARE], size, kind), settings,
        )  # fmt: skip
