# mypy: allow-untyped-defs, allow-untyped-calls
"""Where the columns of a chart are, in the orders in which the kernels take them.

The kernels add up hundreds of columns per step. Their places (see `layout`) are the same at every step, so
they are written down once per call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndstack.ops.runtime.simd import kernel, maker


class Places(NamedTuple):
    """Where the columns (k, (u, y)) are, in the orders in which they are taken, for `size` times k.

    With a window, columns are taken from i = t - D on, so t * K is to be added to a place (`moved`).

    Attributes:
        up: [S * size * Q], at (y * size + k) * Q + u.
        down: [S * size * Q], at (y * size + size - 1 - k) * Q + Q - 1 - u.
        each: [K * size], at b * size + k.
    """

    size: int
    up: np.ndarray
    down: np.ndarray
    each: np.ndarray


@maker
def make_places(shape, times):
    """The `Places` of the first times, and of four more, which are only ever looked at by groups of four."""
    Q, S, size = shape.states, shape.symbols, times + 4
    up, down, each = (
        np.empty(S * size * Q, np.int64),
        np.empty(S * size * Q, np.int64),
        np.empty(S * size * Q, np.int64),
    )
    for k in range(size):
        known = k if k < shape.start.size else shape.start.size - 1
        place = shape.start[known] - (known * Q * S if shape.band > 0 else 0)
        for u in range(Q):
            for y in range(S):
                b = u * S + y
                up[(y * size + k) * Q + u] = place + b * shape.stride[known]
                down[(y * size + size - 1 - k) * Q + Q - 1 - u] = place + b * shape.stride[known]
                each[b * size + k] = place + b * shape.stride[known]
    return Places(size, up, down, each)


@kernel
def moved(shape, t):
    """What is to be added to `Places` at step t."""
    return t * shape.states * shape.symbols if shape.band > 0 else 0
