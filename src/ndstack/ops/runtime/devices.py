"""Where tensors are, and what may be asked of them there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Return whether the numbers are in the memory of this process, so that looking at them costs nothing.

    Elsewhere a look waits until the device has done all that it was asked to do.
    """
    return tensor.is_cpu


def has_double(device: torch.device) -> bool:
    """Return whether the device computes in float64."""
    return device.type != "mps"


@contextlib.contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Return a context in which products of matrices have all digits of float32, whatever is allowed outside.

    With the ten bits of TF32 on CUDA probabilities would be right to three digits.
    """
    if device.type != "cuda":
        yield
        return
    module = torch.backends.cuda.matmul
    name, wanted = ("fp32_precision", "ieee") if hasattr(module, "fp32_precision") else ("allow_tf32", False)
    before = getattr(module, name)
    setattr(module, name, wanted)
    try:
        yield
    finally:
        setattr(module, name, before)
