# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled exponential functions of whole arrays, in place.

The library's functions take one number at a time. These are loops without branches, which LLVM turns into
operations on vectors: e^x = 2^n e^r with |r| <= log(2) / 2, and e^r - 1 from its power series, whose first
term left out is below 1e-17. The result is within 2 units in the last place.

Numbers of float32 are computed in float64 and rounded once, but for those of `exp_each`: attention needs as
many of them as there are pairs of positions, and a vector holds twice as many in float32.
"""

import math

import numpy as np

from ndstack.ops.runtime.compiling import Flags, internal, loop
from ndstack.ops.runtime.simd import BYTES, lanes

LOWEST, HIGHEST = -708.0, 709.0
"""Beyond these, `exp_each` gives 0 and infinity; between them, all numbers are normal ones."""

LOWEST_SINGLE, HIGHEST_SINGLE = -87.33, 88.37
"""The same for float32."""

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


@_exactly
def _exp(x):
    rest, power = _parts(_within(x, LOWEST, HIGHEST))
    y = power + power * rest
    y = y if x > LOWEST else 0.0
    y = y if x < HIGHEST else math.inf
    return y if x == x else x


@_exactly
def _exp_single(x):
    """`_exp` with the digits of float32: the first term of the series left out is below 1e-8."""
    single = np.float32
    low, high = single(LOWEST_SINGLE), single(HIGHEST_SINGLE)
    within = x if x > low else low
    within = within if within < high else high
    shifted = within * single(_LOG2_E) + single(12582912.0)  # 1.5 * 2**23, see _ROUND
    n = shifted - single(12582912.0)
    r = within - n * single(0.693359375) + n * single(2.1219444e-4)  # log(2) in two parts
    series = single(1.984126984e-4)  # 1 / 7!
    series = series * r + single(1.388888889e-3)
    series = series * r + single(8.333333333e-3)
    series = series * r + single(4.166666667e-2)
    series = series * r + single(1.666666667e-1)
    series = series * r + single(0.5)
    exponent = np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23))
    power = np.int32(exponent).view(np.float32)
    y = power + power * (series * r * r + r)
    y = y if x > low else single(0.0)
    y = y if x < high else single(math.inf)
    return y if x == x else x


@_loop
def exp_each(values):
    """e^x for every x of a contiguous array; 0 below LOWEST, infinity above HIGHEST, of its dtype."""
    if lanes(values) * 4 == BYTES:
        for j in range(values.size):
            values[j] = _exp_single(np.float32(values[j]))
    else:
        for j in range(values.size):
            values[j] = _exp(np.float64(values[j]))


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
