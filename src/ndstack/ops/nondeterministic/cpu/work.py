# mypy: allow-untyped-defs, allow-untyped-calls
"""Room for what the compiled steps compute on their way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndstack.ops.nondeterministic.cpu.places import Places, make_places
from ndstack.ops.runtime.simd import lanes, maker


class Work(NamedTuple):
    """Room for one step."""

    joint: np.ndarray  # [K * K + K * K + K], wpush, wreplace and epop, one after the other
    wpush: np.ndarray  # [K * K]
    wreplace: np.ndarray  # [K * K]
    epop: np.ndarray  # [K]
    best_pop: np.ndarray  # [Q]
    wpop: np.ndarray  # [K * Q]
    exponents: np.ndarray  # [K * Q]
    kept: np.ndarray  # [K]
    uncovered: np.ndarray  # [K]
    tops: np.ndarray  # [K]
    sums: np.ndarray  # [K]
    fresh: np.ndarray  # [K]
    terms: np.ndarray  # [3 * K]
    shares: np.ndarray  # [A], the weights of all actions
    popped: np.ndarray  # [Q * length], A
    uncovering: np.ndarray  # [Q * length], E A
    pattern: np.ndarray  # [16 * S], numbers for each y, again and again
    places: Places
    cell: np.ndarray  # room for one SIMD vector
    off: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    pos: np.ndarray
    products: np.ndarray


@maker
def make_work(shape, times, like):
    """A `Work` for charts of the given number of times."""
    Q, S = shape.states, shape.symbols
    K = Q * S
    length = (shape.band if shape.band > 0 else times + 1) * K + 64
    streams = K + (times + 4) * Q
    joint = np.zeros(K * (2 * K + 1))
    return Work(
        joint,
        joint[: K * K],
        joint[K * K : 2 * K * K],
        joint[2 * K * K :],
        np.zeros(Q),
        np.zeros(K * Q, like.dtype),
        np.zeros(K * Q),
        np.zeros(K),
        np.zeros(K),
        np.zeros(K),
        np.zeros(K),
        np.zeros(K),
        np.zeros(3 * K),
        np.zeros(K * (2 * K + Q)),
        np.zeros(Q * length, like.dtype),
        np.zeros(Q * length, like.dtype),
        np.zeros(16 * S),
        make_places(shape, times),
        np.zeros(lanes(like), like.dtype),
        np.zeros(streams, np.int64),
        np.zeros(streams * K, like.dtype),
        np.zeros(length // 4 + 4 + streams, np.int64),
        np.zeros(2 * K, np.int64),
        np.zeros(4 * (K + times // 4 + 4) * max(K, 4), like.dtype),
    )
