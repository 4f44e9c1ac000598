"""Random input for the stacks as functions, and what their tests compare."""

from __future__ import annotations

import torch
from torch import Tensor


def stratification_inputs(
    batch: int, n: int, m: int, seed: int = 0, thickest: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    push, pop = (thickest * torch.rand(batch, n, dtype=torch.float64, generator=generator) for _ in range(2))
    vectors = torch.randn(batch, n, m, dtype=torch.float64, generator=generator)
    return push.requires_grad_(), pop.requires_grad_(), vectors.requires_grad_()


def superposition_inputs(
    batch: int, n: int, m: int, seed: int = 0, normalized: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, n, 3, dtype=torch.float64, generator=generator)
    weights = logits.softmax(-1) if normalized else logits
    vectors = torch.randn(batch, n, m, dtype=torch.float64, generator=generator)
    push, pop, noop = (part.clone().requires_grad_() for part in weights.unbind(-1))
    return push, pop, noop, vectors.requires_grad_()


def gradients(readings: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of a fixed random combination of the readings."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(readings.shape, dtype=readings.dtype, generator=generator)
    return torch.autograd.grad(
        readings, leaves, weight, retain_graph=True, allow_unused=True, materialize_grads=True
    )


def assert_same(ours: Tensor, expected: Tensor, leaves: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)
    if ours.numel():
        for a, b in zip(gradients(ours, leaves), gradients(expected, leaves), strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
