"""Clipping and Adam in plain torch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.adam.settings import AdamSettings

SMALL = 1e-6
"""What torch adds to the norm before it divides by it."""


def norm(gradients: Sequence[Tensor]) -> float:
    """Return the norm of all gradients together."""
    return math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients))


def clipping_factor(length: float, limit: float) -> float:
    """Return by what gradients of this norm are multiplied, so that it is at most the limit."""
    return min(1.0, limit / (length + SMALL))


def update(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    step: int,
    settings: AdamSettings,
) -> None:
    """Make step number `step`, from 1 on, in place.

    m <- b_1 m + (1 - b_1) g,   v <- b_2 v + (1 - b_2) g^2,
    w <- w - rate (m / (1 - b_1^step)) / (sqrt(v / (1 - b_2^step)) + eps)
    """
    rate, first, second, eps = settings
    mean.copy_(first * mean + (1 - first) * gradient)
    square.copy_(second * square + (1 - second) * gradient.square())
    with torch.no_grad():
        parameter -= rate * (mean / (1 - first**step)) / ((square / (1 - second**step)).sqrt() + eps)
