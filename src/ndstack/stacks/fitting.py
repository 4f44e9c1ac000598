"""Whether what a stack is given fits it: whole numbers, and states, wherever they come from.

Compiled code believes the sizes that a state has, so these are compared with the stack's own and with the
shapes of all tensors in the state before anything is computed.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from ndstack.errors import NdstackError


def whole(name: str, value: Any, hint: str = "") -> int:
    """The number given for this argument; an error in one line unless it is whole and at least 1."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise NdstackError(f"{name} is {value}, expected 1 or more{hint}")
    return number


def is_like(tensor: object, reading: Tensor, *shape: int | None) -> bool:
    """Whether it is a tensor of the dtype and on the device of a reading; a size of None is any."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype is reading.dtype
        and tensor.device == reading.device
        and tensor.layout is torch.strided
        and len(tensor.shape) == len(shape)
        and all(size in (None, own) for size, own in zip(shape, tensor.shape, strict=True))
    )
