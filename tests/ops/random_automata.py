"""Random automata, their gradients, and how near two results have to be."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def random_weights(
    batch: int,
    n: int,
    states: int,
    symbols: int,
    *,
    scale: float = 1.0,
    zeros: float = 0.0,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """push, replace and pop in float64, with numbers that float32 can hold."""
    generator = torch.Generator().manual_seed(seed)

    def weights(*shape: int) -> Tensor:
        values = scale * torch.randn(batch, n, *shape, generator=generator)
        drop = torch.rand(values.shape, generator=generator) < zeros
        return values.masked_fill(drop, -math.inf).double().requires_grad_()

    kinds = (states, symbols)
    return weights(*kinds, *kinds), weights(*kinds, *kinds), weights(*kinds, states)


def gradients(outputs: list[Tensor], inputs: list[Tensor], seed: int = 1) -> list[Tensor]:
    """The derivatives of a fixed random combination of the outputs by the inputs."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros((), dtype=torch.float64)
    for output in outputs:
        weights = torch.randn(output.shape, dtype=torch.float64, generator=generator)
        total = total + (output * weights.to(output.dtype)).sum()
    if not total.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [
        torch.zeros_like(tensor) if grad is None else grad for tensor, grad in zip(inputs, found, strict=True)
    ]


def assert_near(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """No difference above the tolerance, relative to the largest number where that exceeds 1."""
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        if ours.numel():
            error = (ours.double() - theirs.double()).abs().max().item()
            assert error <= tolerance * max(1.0, theirs.abs().max().item()), error
