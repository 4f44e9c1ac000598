"""The moments of all parameters, and their updates by compiled loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.adam import loops
from ndstack.ops.adam.reference import clipping_factor
from ndstack.ops.adam.settings import AdamSettings
from ndstack.ops.runtime.addresses import KIND, Array, address, same_places, written
from ndstack.ops.runtime.threads import share

PART = 16384
"""How many numbers are one part of the work, at most."""


class _Parts(NamedTuple):
    """The parts of all parameters: whose, and at how many bytes from its first number."""

    owners: Array
    offsets: Array


class Moments:
    """The moments m and v of some parameters, all of one dtype.

    Args:
        parameters: see `ndstack.ops.adam.make_moments`, as for the rest.
        means: m of each parameter.
        squares: v of each parameter.
        counters: how many steps were made, for each parameter.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        means: Sequence[Tensor],
        squares: Sequence[Tensor],
        counters: Sequence[Tensor],
    ) -> None:
        self._counters = [written(counter, torch.float32) for counter in counters]
        self.dtype, self._shapes = parameters[0].dtype, [parameter.shape for parameter in parameters]
        sizes = [parameter.numel() for parameter in parameters]
        self._held = [*parameters, *means, *squares]
        self._places = [
            address(tensor, self.dtype, *shape)
            for tensor, shape in zip(self._held, 3 * self._shapes, strict=True)
        ]
        width = parameters[0].element_size()
        counts = [-(-size // PART) for size in sizes]
        self._parts = _Parts(
            np.repeat(np.arange(len(counts)), counts),
            np.concatenate([np.arange(count) for count in counts]) * (PART * width),
        )
        owners, offsets = self._parts
        self._table = np.zeros((len(owners), loops.COLUMNS), np.int64)
        bases = np.array(self._places).reshape(3, -1)[:, owners] + offsets
        self._table[:, [loops.PARAMETER, loops.MEAN, loops.SQUARE]] = bases.T
        self._table[:, loops.SIZE] = np.minimum(np.array(sizes)[owners] - offsets // width, PART)
        self._size = sum(sizes)

    def ready(self) -> bool:
        """Return whether everything is where it was, and all parameters have made equally many steps."""
        return same_places(self._held, self._places) and len({float(one) for one in self._counters}) == 1

    def clip_and_update(self, gradients: Sequence[Tensor], limit: float, settings: AdamSettings) -> float:
        """Clip the gradients to a norm, make a step of Adam, and return what the norm was.

        The gradients themselves remain as they are. If their norm is not finite, so does everything else.
        """
        owners, offsets = self._parts
        held = [gradient.contiguous() for gradient in gradients]
        places = [address(one, self.dtype, *shape) for one, shape in zip(held, self._shapes, strict=True)]
        self._table[:, loops.GRADIENT] = np.array(places)[owners] + offsets
        kind, total = KIND[self.dtype], np.empty(len(owners))
        share(len(owners), loops.squares, float(self._size), self._table, kind, total)
        norm = math.sqrt(total.sum())
        if not math.isfinite(norm):
            return norm
        step = int(self._counters[0]) + 1
        rate, first, second, eps = settings
        numbers = (
            clipping_factor(norm, limit), rate / (1 - first**step), 1 - first, 1 - second,
            math.sqrt(1 - second**step), eps,
        )  # fmt: skip
        share(len(owners), loops.update, 10.0 * self._size, self._table, kind, numbers)
        for counter in self._counters:
            counter.fill(step)
        return norm
