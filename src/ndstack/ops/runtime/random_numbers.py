# mypy: allow-untyped-defs, allow-untyped-calls
"""Random numbers in compiled loops, each a function of a seed and of the number of its place.

Nothing is carried from one number to the next. So loops over them become operations on vectors, threads may
take any part of them, and a backward pass gets the numbers of its forward pass again without keeping them.
"""

import numpy as np

from ndstack.ops.runtime.compiling import internal, loop

_internal, _loop = internal(nogil=True, _nrt=False), loop(nogil=True, error_model="numpy")


@_internal
def random_bits(place, seed, other):
    """32 random bits for a place: a product spreads its bits, the rest mixes them with both seeds."""
    x = np.uint32(np.uint32(np.uint32(place) * np.uint32(0x9E3779B1)) ^ seed)
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(x + other)
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@_loop
def drop_out(values, place, seeds):
    """Set each number to 0 with a probability of seeds[2] / 2**32, and divide the others by that of staying.

    Args:
        values: contiguous, changed in place.
        place: the number of the first place, such that no two calls with the same seeds share places.
        seeds: two seeds and the threshold, uint32.
    """
    seed, other, threshold = seeds[0], seeds[1], seeds[2]
    factor = values.dtype.type(1 / (1 - np.float64(threshold) / 4294967296.0))
    none = values.dtype.type(0)
    for j in range(values.size):
        values[j] = values[j] * factor if random_bits(place + j, seed, other) >= threshold else none
