"""The one door between tensors and compiled code: no other module takes the address of memory.

Compiled code does not check sizes. Therefore everything that it reads or writes is checked here, in every
call: it has to be contiguous, in the memory of the CPU, and of the dtype and shape that the kernel assumes;
anything else is an error of one line.

Memory for a kernel to write to is made here, too. With the environment variable NDSTACK_GUARD=1 every such
buffer lies between guard bytes and begins as nan, and all guards are checked in every call: a kernel that
writes beyond the end of its memory causes an error, and one that reads there gives nan.
"""

from __future__ import annotations

import atexit
import collections
import math
import os
import weakref
from array import array as array_of_numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ndstack.errors import NdstackError

Array = npt.NDArray[Any]
"""An array of numpy, as compiled code takes it."""

KIND = {torch.float32: np.float32(0), torch.float64: np.float64(0)}
"""A number of the type to be found at an address, for each dtype that compiled code takes."""

GUARD = os.environ.get("NDSTACK_GUARD", "") not in ("", "0")
"""Whether buffers lie between guard bytes; this is slow, and meant for finding faults."""

_ALIGNMENT = 64  # the widest vector registers
_SMALL = 4096  # numbers that are zeroed at once, which takes less time than to ask for zeros
_ZONE = 256  # guard bytes on each side
_PATTERN = 0xFF  # a nan in every format
_NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int32: np.int32,
    torch.bool: np.bool_,
}
_LIKE = {dtype: torch.empty(0, dtype=dtype, device="cpu") for dtype in _NUMPY}
"""`new_empty` takes half the time of `torch.empty` with a dtype and a device."""


def address(tensor: Tensor, dtype: torch.dtype, *shape: int) -> int:
    """Return the address of a tensor's numbers, which have to be contiguous and of this dtype and shape."""
    if (
        tensor.dtype is not dtype
        or tensor.shape != shape
        or not tensor.is_cpu
        or not tensor.is_contiguous()
        or tensor.is_neg()
    ):
        raise _unfit(tensor, dtype, shape)
    if GUARD:
        inspect()
    place = tensor.data_ptr()
    if place == 0 and tensor.numel():
        raise NdstackError(f"a tensor of shape {list(shape)} given whose memory has been released")
    return place


def rows(tensor: Tensor, dtype: torch.dtype, *shape: int) -> tuple[int, int]:
    """Return the address of a matrix and the stride between its rows, each of which has to be contiguous."""
    if (
        tensor.dtype is not dtype
        or tensor.shape != shape
        or not tensor.is_cpu
        or (tensor.stride(1) != 1 and shape[1] > 1)
        or tensor.is_neg()
    ):
        raise _unfit(tensor, dtype, shape)
    return tensor.data_ptr(), tensor.stride(0)


def optional(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> int:
    """Return what `address` does; 0 for None."""
    return 0 if tensor is None else address(tensor, dtype, *shape)


def optional_rows(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> tuple[int, int]:
    """Return what `rows` does; zeros for None."""
    return (0, 0) if tensor is None else rows(tensor, dtype, *shape)


def array(tensor: Tensor, dtype: torch.dtype, *shape: int) -> Array:
    """Return a tensor's numbers as a contiguous array: its own memory if that is contiguous, or a copy."""
    if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu or tensor.is_neg():
        raise _unfit(tensor, dtype, shape)
    if GUARD:
        inspect()
    return _numbers(tensor if tensor.is_contiguous() else tensor.contiguous())


def array_or_zeros(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> Array:
    """Return what `array` does; zeros for None."""
    return array(zeros(dtype, *shape) if tensor is None else tensor, dtype, *shape)


def written(tensor: Tensor, dtype: torch.dtype, *shape: int) -> Array:
    """Return a tensor's own memory as an array, to be written to."""
    address(tensor, dtype, *shape)
    return _numbers(tensor)


def _numbers(tensor: Tensor) -> Array:
    numbers: Array = tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()
    return numbers


def memory_of(view: Tensor, dtype: torch.dtype) -> Array:
    """Return all numbers of the memory that a view is part of, flat, without a copy.

    Where a number of the view is follows from its offset and strides.
    """
    if view.dtype is not dtype or not view.is_cpu or view.is_neg():
        raise _unfit(view, dtype, tuple(view.shape))
    size = view.untyped_storage().nbytes() // view.element_size()
    return array(view.as_strided((size,), (1,), 0), dtype, size)


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share their memory; those without memory, on meta, share none."""
    return not one.is_meta and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def known_addresses(tensors: Sequence[Tensor]) -> list[int]:
    """Return the addresses of tensors that this module has made, or that `address` has seen, again."""
    if GUARD:
        inspect()
    return [tensor.data_ptr() for tensor in tensors]


def same_places(tensors: Sequence[Tensor], places: Sequence[int]) -> bool:
    """Return whether the numbers of these tensors are still at the addresses that they had before."""
    return known_addresses(tensors) == places


def of_numbers(numbers: Sequence[int]) -> tuple[array_of_numbers[int], int]:
    """Return whole numbers as a table for compiled code, to be kept while it is used, and its address."""
    table = array_of_numbers("q", numbers)
    return table, table.buffer_info()[0]


def of_table(numbers: Array) -> int:
    """Return the address of an array that the caller has made and keeps alive."""
    if not numbers.flags.c_contiguous:
        raise NdstackError("a table of numbers that is not contiguous")
    return int(numbers.ctypes.data)


def empty(dtype: torch.dtype, *shape: int) -> Tensor:
    """Return memory for a kernel to write to, as a contiguous tensor that is not initialised."""
    if GUARD:
        return _guarded(dtype, shape, _PATTERN)
    return _LIKE[dtype].new_empty(shape)


def fresh(dtype: torch.dtype, shapes: Iterable[tuple[int, ...]]) -> tuple[list[Tensor], list[Array]]:
    """Return memory as `empty` does, for each of the shapes: as tensors, and as arrays of the same memory."""
    tensors = [empty(dtype, *shape) for shape in shapes]
    return tensors, [tensor.numpy() for tensor in tensors]


def empty_with_address(dtype: torch.dtype, *shape: int) -> tuple[Tensor, int]:
    """Return what `empty` does, with its address."""
    tensor = _guarded(dtype, shape, _PATTERN) if GUARD else _LIKE[dtype].new_empty(shape)
    return tensor, tensor.data_ptr()


def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
    """Return zeros that take memory only where they are touched, aligned to the size of a vector."""
    if GUARD:
        return _guarded(dtype, shape, 0)
    kind, size = _NUMPY[dtype], math.prod(shape)
    if size <= _SMALL:
        return _LIKE[dtype].new_zeros(shape)
    flat: Array = np.zeros(size + _ALIGNMENT // np.dtype(kind).itemsize, kind)
    place: int = flat.__array_interface__["data"][0]  # `flat.ctypes` takes longer than the rest
    first = -place % _ALIGNMENT // flat.itemsize
    return torch.from_numpy(flat[first : first + size].reshape(shape))


def _unfit(tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> NdstackError:
    pieces = "" if tensor.layout is torch.strided and tensor.is_contiguous() else ", not contiguous"
    return NdstackError(
        f"{tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}{pieces} given to compiled code, "
        f"expected {dtype} of shape {list(shape)} on the CPU"
    )


_alive: dict[int, tuple[weakref.ref[Array], int, tuple[int, ...]]] = {}
_recent: collections.deque[Array] = collections.deque(maxlen=100)


def _guarded(dtype: torch.dtype, shape: tuple[int, ...], fill: int) -> Tensor:
    """Return memory between guard bytes."""
    inspect()
    kind = _NUMPY[dtype]
    size = math.prod(shape) * np.dtype(kind).itemsize
    flat = np.full(size + 2 * _ZONE + _ALIGNMENT, _PATTERN, np.uint8)
    first = -flat.ctypes.data % _ALIGNMENT + _ZONE
    flat[first : first + size] = fill
    _alive[id(flat)] = (weakref.ref(flat), first, (size, *shape))
    weakref.finalize(flat, _alive.pop, id(flat), None)
    _recent.append(flat)  # until its guards have been checked
    return torch.from_numpy(flat[first : first + size].view(kind).reshape(shape))


def inspect() -> None:
    """Raise an error if a kernel has written outside its buffers; for NDSTACK_GUARD=1."""
    for reference, first, (size, *shape) in list(_alive.values()):
        flat = reference()
        if flat is None:
            continue
        if (flat[:first] != _PATTERN).any() or (flat[first + size :] != _PATTERN).any():
            _alive.clear()
            raise SystemError(f"a kernel has written outside a buffer of shape {shape}")


if GUARD:
    atexit.register(inspect)
