# mypy: allow-untyped-defs, allow-untyped-calls
"""See the memory of a tensor from compiled code, by its address.

Turning a tensor into a numpy array costs microseconds. A scan does that a few times a sequence and
does not notice; a single step of a small stack would spend most of its time on it.
"""

from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def _pointer(typing_context: Any, address: Any, kind: Any) -> Any:
    """The address as a pointer to numbers of the type of `kind`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind)(address, kind), generate


@numba.njit(inline="always")
def numbers(address, size, kind):
    """The `size` numbers at an address as an array; `size` may be 0."""
    return numba.carray(_pointer(address, kind), size)  # type: ignore[attr-defined, call-arg]
