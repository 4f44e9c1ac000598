# mypy: allow-untyped-defs, allow-untyped-calls
"""The memory of a tensor as an array of compiled code, by its address.

Turning a tensor into a numpy array costs microseconds. That does not matter in a scan, which does it a few
times per sequence; a single step of a small stack would spend most of its time on it.
"""

import numba
from numba.core import types

from ndstack.ops.runtime.simd import Typed, intrinsic


@intrinsic
def _pointer(typing_context: object, address: types.Integer, kind: types.Float) -> Typed:
    """The address as a pointer to numbers of the type of `kind`."""
    pointer = types.CPointer(kind)
    return pointer(address, kind), lambda context, builder, _, arguments: builder.inttoptr(
        arguments[0], context.get_value_type(pointer)
    )


@numba.njit(inline="always")
def numbers(address, size, kind):
    """The `size` numbers at an address as an array; `size` may be 0."""
    return numba.carray(_pointer(address, kind), size)  # type: ignore[attr-defined]
