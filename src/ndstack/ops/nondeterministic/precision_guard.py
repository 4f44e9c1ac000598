"""The precision guard: float32, then float64, then log space.

A chart in float32 may lose runs to underflow. Each fast backend reports which sequences of a batch can be
trusted: those whose lost mass stays within `precision_limits.LIMITS`. The others are computed again in
float64, and where that is not enough either, in log space by the reference. `redo` and `next_format` are
that rule, for whole sequences (`guarded_scan`), for steps (`guarded_steps`) and for runs with a controller
(`ndstack.nn.fused`), on every device. Invalid sequences (`invalid_sequences`) are left alone, since a wider
format would change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Way = TypeVar("Way")


def next_format(dtype: torch.dtype, in_float64: Way, in_log_space: Way) -> Way:
    """Return how to compute what this dtype is too narrow for."""
    return in_float64 if dtype == torch.float32 else in_log_space


def redo(
    results: Sequence[Tensor], untrusted: Tensor, again: Callable[[Tensor], Iterable[Tensor]]
) -> tuple[Tensor, ...]:
    """The results of a batch, those of untrusted sequences computed again.

    Args:
        results: [B, ...] each.
        untrusted: [B], which sequences are not to be trusted.
        again: gives the results of some sequences, by their places in the batch, in a wider format.
    """
    rows = places(untrusted)
    if len(rows) == 0:
        return tuple(results)
    pairs = zip(results, again(rows), strict=True)
    return tuple(result.index_copy(0, rows, better.to(result)) for result, better in pairs)


def places(flags: Tensor) -> Tensor:
    """The places of a batch with a flag, [B], that is set.

    All looks of the guard go through here, once per sequence and pass, because on a GPU a look waits.
    """
    return flags.nonzero().squeeze(-1)


def finite_sequences(*tensors: Tensor | None) -> Tensor:
    """Which sequences of a batch have finite numbers only, [B]; None counts as finite."""
    found = [tensor.isfinite().flatten(1).all(1) for tensor in tensors if tensor is not None]
    return torch.stack(found).all(0)
