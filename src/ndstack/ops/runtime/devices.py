"""Where tensors are, and what may be asked of them there."""

from __future__ import annotations

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
