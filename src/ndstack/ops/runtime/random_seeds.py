"""Seeds for `random_numbers`, from torch's generator."""

import numpy as np
import torch

from ndstack.ops.runtime.addresses import Array

RANGE = 2**32


def draw_seeds(rate: float) -> Array:
    """Return two random seeds, and below how many of 2**32 a random number has this probability."""
    seeds = torch.randint(RANGE, (2,), dtype=torch.int64, device="cpu").tolist()
    return np.array([*seeds, min(round(rate * RANGE), RANGE - 1)], np.uint32)
