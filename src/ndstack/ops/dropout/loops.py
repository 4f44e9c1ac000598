# mypy: allow-untyped-defs, allow-untyped-calls
"""The compiled loop of dropout, used by `cpu`."""

from ndstack.ops.runtime.products import copy
from ndstack.ops.runtime.random_numbers import drop_out
from ndstack.ops.runtime.simd import entry, kernel_loop

PART = 1024
"""How many numbers are one part of the work."""


@kernel_loop
def add_to(values, result):
    """result += values."""
    for j in range(result.size):
        result[j] += values[j]


@entry
def drop(first, last, x, seeds, residual, out):
    """out = D x + residual for the parts first..last-1 of flat arrays; `residual` may be empty."""
    for part in range(first, last):
        begin, end = part * PART, min((part + 1) * PART, x.size)
        own = out[begin:end]
        copy(x[begin:end], own)
        drop_out(own, begin, seeds)
        if residual.size:
            add_to(residual[begin:end], own)
