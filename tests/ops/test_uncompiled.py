"""The intrinsics as machine code and as what stands in for them without compilation do the same."""

import numba
import numpy as np
import pytest
from tests import uncompiled

from ndstack.ops.runtime import pointers, simd

pytestmark = pytest.mark.compiled


def program(module):
    """Every operation of a module, on vectors that begin at odd places."""

    def calculate(numbers, out):
        width, first, second = module.lanes(numbers), module.load(numbers, 1), module.load(numbers, 3)
        both = module.plus(first, second)
        module.store(out, 1, module.fma(first, module.spread(numbers, 5), second))
        module.store(out, 1 + width, both)
        module.store(out, 1 + 2 * width, module.larger(module.least_positive(first, second), both))
        module.store_sums(out, 1 + 3 * width, first, second, both, module.zeros(numbers))

    return calculate


def eight_sums(module):
    def calculate(numbers, out):
        a, b, c, d = (
            module.load(numbers, 1),
            module.load(numbers, 2),
            module.load(numbers, 3),
            module.zeros(numbers),
        )
        module.store_eight_sums(
            out, 1, a, b, c, d, module.plus(a, b), module.plus(b, c), module.plus(c, a), a
        )

    return calculate


def other_lengths(module):
    def calculate(numbers, out):
        width = module.lanes(numbers)
        half = module.fma(
            module.load_half(numbers, 1), module.spread_half(numbers, 2), module.zeros_half(numbers)
        )
        module.store(out, 1, half)
        place = 1 + width // 2
        module.store(out, place, module.plus(module.load2(numbers, 1), module.spread2(numbers, 3)))
        place += 2 * width
        module.store(out, place, module.plus(module.load4(numbers, 1), module.spread4(numbers, 4)))

    return calculate


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_of_other_lengths(dtype, monkeypatch):
    monkeypatch.setattr(uncompiled, "BYTES", simd.BYTES)
    numbers = np.random.default_rng(2).normal(size=70).astype(dtype)
    found, expected = np.zeros(120, dtype), np.zeros(120, dtype)
    numba.njit(other_lengths(simd))(numbers, found)
    other_lengths(uncompiled)(numbers, expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.finfo(dtype).eps)
    assert np.count_nonzero(found) == 13 * (simd.BYTES // found.itemsize) // 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors(dtype, monkeypatch):
    monkeypatch.setattr(uncompiled, "BYTES", simd.BYTES)
    numbers = np.random.default_rng(0).normal(size=40).astype(dtype)
    found, expected = np.zeros(80, dtype), np.zeros(80, dtype)
    numba.njit(program(simd))(numbers, found)
    program(uncompiled)(numbers, expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(dtype).eps)
    assert np.count_nonzero(found) == 3 * simd.BYTES // found.itemsize + 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eight_sums(dtype, monkeypatch):
    monkeypatch.setattr(uncompiled, "BYTES", simd.BYTES)
    numbers = np.random.default_rng(1).normal(size=40).astype(dtype)
    found, expected = np.zeros(12, dtype), np.zeros(12, dtype)
    numba.njit(eight_sums(simd))(numbers, found)
    eight_sums(uncompiled)(numbers, expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(dtype).eps)
    assert np.count_nonzero(found) == 7


def test_stand_ins_notice_the_end_of_an_array():
    array = np.zeros(uncompiled.BYTES // 8)
    uncompiled.store(array, 0, uncompiled.load(array, 0))
    for place in (-1, 1):
        with pytest.raises(AssertionError):
            uncompiled.load(array, place)
        with pytest.raises(AssertionError):
            uncompiled.store(array, place, array)


@pytest.mark.parametrize("kind", [np.float32(0), np.float64(0), np.int64(0), np.uint8(0)])
def test_memory(kind):
    array = np.arange(5).astype(kind.dtype)
    read = numba.njit(lambda address, size: pointers.numbers(address, size, kind).sum())
    for address, size, total in ((array.ctypes.data, 5, 10), (0, 0, 0)):
        stand_in = numba.carray(uncompiled._pointer(address, kind), size)  # type: ignore[attr-defined]
        assert read(address, size) == stand_in.sum() == total
