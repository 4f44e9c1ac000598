# mypy: allow-untyped-defs, allow-untyped-calls
"""Products of matrices in the log semiring, compiled.

    out[m, n] = log sum_k e^(left[m, k] + right[n, k])

Every sum is relative to its own largest term, so it loses nothing, however far apart the weights are.
"""

from __future__ import annotations

import math

import numpy as np

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.simd import entry, kernel, kernel_loop, lanes, larger, load, store


@kernel
def _first_finite(row):
    """Where the weights of a row begin that are not zero."""
    first = 0
    while first < row.size and row[first] == -math.inf:
        first += 1
    return first


@kernel_loop
def _add(left, right, shift, out):
    """out = left + right - shift."""
    for k in range(out.size):
        out[k] = left[k] + right[k] - shift


@kernel_loop
def _sum(values):
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


@kernel_loop
def _largest(values, cell):
    """The largest number of an array that is not empty."""
    best, width = values[0], lanes(values)
    whole = values.size - values.size % width
    if whole > 0:
        most = load(values, 0)
        for k in range(width, whole, width):
            most = larger(most, load(values, k))
        store(cell, 0, most)
        for k in range(width):
            best = cell[k] if cell[k] > best else best
    for k in range(whole, values.size):
        best = values[k] if values[k] > best else best
    return best


@kernel_loop
def _add_scaled(values, factor, first, second):
    """Add factor * values to both."""
    for k in range(values.size):
        first[k] += factor * values[k]
    for k in range(values.size):
        second[k] += factor * values[k]


@entry
def forward(lo, hi, left, right, out):
    """Products lo .. hi - 1 of a batch.

    Args:
        left: [B, m, k].
        right: [B, n, k].
        out: [B, m, n], to be written.
    """
    room, cell = np.empty(left.shape[2]), np.empty(lanes(left))
    for g in range(lo, hi):
        _forward(left[g], right[g], out[g], room, cell)


@kernel
def _forward(left, right, out, room, cell):
    for m in range(left.shape[0]):
        first = _first_finite(left[m])
        terms = room[first:]
        for n in range(right.shape[0]):
            out[m, n] = -math.inf
            if terms.size == 0:
                continue
            _add(left[m, first:], right[n, first:], 0.0, terms)
            top = _largest(terms, cell)
            if top > -math.inf:
                _add(left[m, first:], right[n, first:], top, terms)
                exp_each(terms)
                out[m, n] = top + math.log(_sum(terms))


@entry
def backward(lo, hi, left, right, out, grad, grad_left, grad_right):
    """The derivatives of `forward`, to be added to zeros; a sum of nothing but zeros has none."""
    room = np.empty(left.shape[2])
    for g in range(lo, hi):
        _backward(left[g], right[g], out[g], grad[g], grad_left[g], grad_right[g], room)


@kernel
def _backward(left, right, out, grad, grad_left, grad_right, room):
    for m in range(left.shape[0]):
        first = _first_finite(left[m])
        terms = room[first:]
        for n in range(right.shape[0]):
            if out[m, n] > -math.inf and grad[m, n] != 0:
                _add(left[m, first:], right[n, first:], out[m, n], terms)
                exp_each(terms)
                _add_scaled(terms, grad[m, n], grad_left[m, first:], grad_right[n, first:])
