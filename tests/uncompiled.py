"""What the compiled kernels need in order to run as plain Python, for `make coverage`.

With NUMBA_DISABLE_JIT=1 numba leaves functions as they are, but its intrinsics, which write machine code,
cannot be called then. Here are the same operations on numpy arrays; unlike the machine code, they notice
when a kernel writes beyond the end of an array.
"""

import ctypes

import numba.extending
import numpy as np

BYTES = 32
NOWHERE = np.zeros(1)


def lanes(array):
    return BYTES // array.itemsize


def load(array, place, count=1):
    size = int(count * lanes(array))
    assert 0 <= place <= array.size - size
    return array[place : place + size].copy()


def load_half(array, place):
    return load(array, place, 0.5)


def load2(array, place):
    return load(array, place, 2)


def load4(array, place):
    return load(array, place, 4)


def store(array, place, vector):
    assert 0 <= place <= array.size - vector.size
    array[place : place + vector.size] = vector


def spread(array, place, count=1):
    return np.full(int(count * lanes(array)), array[place])


def spread_half(array, place):
    return spread(array, place, 0.5)


def spread2(array, place):
    return spread(array, place, 2)


def spread4(array, place):
    return spread(array, place, 4)


def zeros(array):
    return np.zeros(lanes(array), array.dtype)


def zeros_half(array):
    return np.zeros(lanes(array) // 2, array.dtype)


def fma(left, right, total):
    return left * right + total


def plus(left, right):
    return left + right


def larger(left, right):
    return np.maximum(left, right)


def least_positive(left, right):
    return np.where((right > 0) & (right < left), right, left)


def store_sums(array, place, *vectors):
    array[place : place + len(vectors)] = [vector.sum() for vector in vectors]


store_eight_sums = store_sums


def _pointer(address, kind):
    number = np.ctypeslib.as_ctypes_type(type(kind))
    return ctypes.cast(int(address) or NOWHERE.ctypes.data, ctypes.POINTER(number))


def _ask(function):
    return ctypes.CFUNCTYPE(ctypes.c_int)(function)()


def _call(function, wide, *given):
    kind = ctypes.c_double if wide else ctypes.c_float
    ctypes.CFUNCTYPE(None, kind, *[ctypes.c_int64] * 3)(function)(0.0, *given)


def replace_intrinsics():
    """Make these the intrinsics of the kernels, which must not have been imported yet."""
    numba.extending.intrinsic = lambda function: globals()[function.__name__]
