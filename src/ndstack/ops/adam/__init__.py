"""Clipping of gradients by their norm, and Adam (Kingma and Ba, 2015): compiled, for tensors on a CPU.

This module is all that the rest of the package may use of this folder. `reference.py` has the equations in
plain torch; `loops.py` is the compiled version, and `cpu.py` finds the memory of all parameters for it.

The parameters of a small network are few numbers in many tensors, on which torch spends its time in calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ndstack.ops.adam.settings import AdamSettings
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.adam import cpu
    from ndstack.ops.adam.cpu import Moments as Moments
else:
    cpu = LazyModule("ndstack.ops.adam.cpu")

__all__ = ["AdamSettings", "make_moments", "updatable"]


def make_moments(
    parameters: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    counters: Sequence[Tensor],
) -> Moments:
    """Return the moments of parameters, whose method `clip_and_update` makes a step.

    Args:
        parameters: at least one, all of one dtype; `updatable` is True for each.
        means: m of each parameter, of the same shape and dtype.
        squares: v of each parameter.
        counters: how many steps were made, the same number for each parameter, of shape [] and float32.
    """
    return cpu.Moments(parameters, means, squares, counters)


def updatable(parameter: Tensor) -> bool:
    """Return whether compiled code can update a parameter."""
    plain = type(parameter.data) is Tensor and parameter.is_cpu and parameter.is_contiguous()
    return plain and parameter.dtype in (torch.float32, torch.float64)
