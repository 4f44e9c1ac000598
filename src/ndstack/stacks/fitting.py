"""Whether a state that a stack is given fits it, wherever it comes from.

Compiled code believes the sizes that a state has, so these are compared with the stack's own and with the
shapes of all tensors in the state before anything is computed.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
