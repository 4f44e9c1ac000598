# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled exponential functions of whole arrays, in place.

The library's functions take one number at a time. These are loops without branches, which LLVM turns into
operations on vectors: e^x = 2^n e^r with |r| <= log(2) / 2, and e^r - 1 from its power series, whose first
term left out is below 1e-17. The result is within 2 units in the last place.
"""

import math

import numpy as np

from ndstack.ops.runtime.compiling import Flags, internal, loop

LOWEST, HIGHEST = -708.0, 709.0
"""Beyond these, `exp_each` gives 0 and infinity; between them, all numbers are normal ones."""

_LOG2_E = 1.4426950408889634
_LOG_2, _LOG_2_REST = 0.6931471803691238, 1.9082149292705877e-10
"""Their sum is log(2); the first has few enough digits for exact products with n."""

_ROUND = 6755399441055744.0
"""1.5 * 2**52: added to a number, it leaves the nearest integer in the last bits."""

_FLAGS: Flags = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"contract"},
}
_exactly, _loop = internal(_nrt=False, **_FLAGS), loop(**_FLAGS)
# No "reassoc": adding and subtracting `_ROUND` must not cancel.


@_exactly
def _parts(x):
    """e^r - 1 and 2^n, for LOWEST <= x <= HIGHEST."""
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = x - n * _LOG_2 - n * _LOG_2_REST
    series = 1.6059043836821613e-10  # 1 / 13!
    series = series * r + 2.08767569878681e-09
    series = series * r + 2.505210838544172e-08
    series = series * r + 2.755731922398589e-07
    series = series * r + 2.7557319223985893e-06
    series = series * r + 2.48015873015873e-05
    series = series * r + 0.0001984126984126984
    series = series * r + 0.001388888888888889
    series = series * r + 0.008333333333333333
    series = series * r + 0.041666666666666664
    series = series * r + 0.16666666666666666
    series = series * r + 0.5
    exponent = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52)
    return series * r * r + r, np.int64(exponent).view(np.float64)


@_exactly
def _within(x, low, high):
    x = x if x > low else low
    return x if x < high else high


@_loop
def exp_each(values):
    """e^x for every x of a contiguous array; 0 below LOWEST, infinity above HIGHEST."""
    for j in range(values.size):
        x = np.float64(values[j])
        rest, power = _parts(_within(x, LOWEST, HIGHEST))
        y = power + power * rest
        y = y if x > LOWEST else 0.0
        y = y if x < HIGHEST else math.inf
        values[j] = y if x == x else x


@_loop
def sigmoid_each(values):
    """1 / (1 + e^-x) for every x of an array; 0 below -HIGHEST."""
    for j in range(values.size):
        x = np.float64(values[j])
        rest, power = _parts(_within(-x, LOWEST, HIGHEST))
        y = 1 / (1 + (power + power * rest))
        y = y if x > -HIGHEST else 0.0
        values[j] = y if x == x else x


@_loop
def tanh_each(values):
    """tanh(x) = (e^2x - 1) / (e^2x + 1) for every x of an array, small ones included."""
    for j in range(values.size):
        x = np.float64(values[j])
        rest, power = _parts(_within(2 * x, -80.0, 80.0))
        less_one = power * rest + (power - 1)
        y = less_one / (less_one + 2)
        values[j] = y if x == x else x
