"""Compiled exponential functions against numpy's."""

import functools
import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndstack.ops.runtime.exponentials import (
    HIGHEST,
    HIGHEST_SINGLE,
    LOWEST,
    LOWEST_SINGLE,
    exp_each,
    sigmoid_each,
    tanh_each,
)

WIDE = np.concatenate(
    [np.linspace(LOWEST, HIGHEST, 40_001)[1:-1], np.random.default_rng(0).normal(size=20_000)]
)


@functools.cache
def compiled(function):
    return numba.njit(lambda array: function(array))


def changed(function, values):
    values = values.copy()
    compiled(function)(values)
    return values


def test_exponentials_are_right_to_the_last_digits():
    assert np.abs(changed(exp_each, WIDE) / np.exp(WIDE) - 1).max() < 5e-16


def test_exponentials_of_float32():
    x = np.concatenate(
        [
            np.linspace(LOWEST_SINGLE, HIGHEST_SINGLE, 40_001)[1:-1],
            np.random.default_rng(0).normal(size=20_000),
        ]
    ).astype(np.float32)
    assert np.abs(changed(exp_each, x) / np.exp(x.astype(np.float64)) - 1).max() < 1.5e-7
    beyond = np.array([-math.inf, -1e4, -87.4, 88.4, 1e4, math.inf, math.nan, 0.0, -0.0], np.float32)
    expected = [0.0, 0.0, 0.0, math.inf, math.inf, math.inf, math.nan, 1.0, 1.0]
    np.testing.assert_array_equal(changed(exp_each, beyond), expected)


def test_exponentials_beyond_the_limits():
    given = np.array([-math.inf, -1e4, LOWEST, HIGHEST, 1e4, math.inf, math.nan, 0.0, -0.0])
    expected = [0.0, 0.0, 0.0, math.inf, math.inf, math.inf, math.nan, 1.0, 1.0]
    np.testing.assert_array_equal(changed(exp_each, given), expected)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 30.0])
def test_tanh_keeps_its_digits_near_zero_and_far_from_it(scale):
    x = scale * np.random.default_rng(1).normal(size=5_000)
    assert np.abs(changed(tanh_each, x) / np.tanh(x) - 1).max() < 1e-15


def test_sigmoid_of_any_number():
    x = np.concatenate([WIDE, [-math.inf, math.inf, -800.0, 800.0]])
    expected = np.exp(-np.logaddexp(0, -x))
    np.testing.assert_allclose(changed(sigmoid_each, x), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(
        changed(sigmoid_each, np.array([-math.inf, -1e4, 1e4, math.inf])), [0, 0, 1, 1]
    )


@given(st.lists(st.floats(width=32, allow_infinity=True, allow_nan=True), max_size=40))
def test_float32_is_rounded_once(numbers):
    x = np.array(numbers, np.float32)
    for function in (tanh_each, sigmoid_each):
        wide = changed(function, x.astype(np.float64))
        np.testing.assert_array_equal(changed(function, x), wide.astype(np.float32))
