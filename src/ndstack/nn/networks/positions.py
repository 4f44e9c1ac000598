"""Sinusoidal positional encodings (chapter 10, after Vaswani et al. 2017, section 3.5).

    PE(t, 2i) = sin(t / 10000^(2i/d)),      PE(t, 2i+1) = cos(t / 10000^(2i/d))

They are computed where they are needed, for any range of positions. So there is no limit to the length of a
sequence, and a sequence that is read in chunks gets the same numbers as one that is read at once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sinusoidal_positions(
    first: int,
    length: int,
    size: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the encodings of the positions first, first + 1, ...: [length, size].

    Args:
        first: the first position; the BOS symbol has position 0.
        length: how many positions.
        size: d, of each encoding.
        dtype: of the result, rounded once, from float64 where the device has it.
        device: where; torch's default device if not given.
    """
    place = torch.get_default_device() if device is None else torch.device(device)
    wide = torch.float32 if place.type == "mps" else torch.float64
    positions = torch.arange(first, first + length, dtype=wide, device=place)
    exponents = torch.arange(0, size, 2, dtype=wide, device=place) / size
    angles = positions[:, None] * 10000.0**-exponents
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return waves[:, :size].to(dtype or torch.get_default_dtype())
