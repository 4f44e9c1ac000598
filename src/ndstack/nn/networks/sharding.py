"""Weights that stay where they are while compiled code uses them.

Fully sharded data parallelism frees the memory of weights between the passes and gathers them again. Compiled
operations remember addresses from the forward to the backward pass, so they get copies then.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor


def settled(weight: Tensor) -> Tensor:
    """Return a weight, or a copy of it if FSDP may be at work."""
    return weight.clone() if sharding() else weight


def sharding() -> bool:
    """Return whether FSDP may be at work."""
    return "torch.distributed.fsdp" in sys.modules and torch.distributed.is_initialized()
