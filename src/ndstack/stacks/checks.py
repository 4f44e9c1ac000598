"""Checks of what a stack is given, before anything is computed.

Compiled code does not check the sizes of a state. So they are compared with the sizes of the stack and with
the shapes of all tensors in the state, wherever the state comes from.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.errors import NdstackError


def is_like(tensor: object, reading: Tensor, *shape: int | None) -> bool:
    """Return whether it is a tensor of the dtype and device of a reading; a size of None is any size."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype is reading.dtype
        and tensor.device == reading.device
        and tensor.layout is torch.strided
        and len(tensor.shape) == len(shape)
        and all(size in (None, own) for size, own in zip(shape, tensor.shape, strict=True))
    )


def check_tensors(*given: object) -> None:
    """Raise an error in one line unless these are ordinary tensors."""
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise NdstackError(f"a {type(tensor).__name__} given, expected a tensor; use torch.as_tensor")
        if tensor.layout is not torch.strided:
            raise NdstackError(f"a tensor of layout {tensor.layout} given; use .to_dense()")


def real(tensor: Tensor) -> Tensor:
    """Return the tensor; raise an error in one line if its numbers are complex."""
    if tensor.is_complex():
        raise NdstackError(f"a tensor of {tensor.dtype} given, expected real numbers")
    return tensor
