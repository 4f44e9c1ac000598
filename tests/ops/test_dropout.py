"""Compiled dropout against the definition with the same random factors, and against torch's own."""

import math

import pytest
import torch

from ndstack.nn.networks.dropout import Dropout
from ndstack.ops.dropout import cpu, drop, reference
from ndstack.ops.runtime.random_seeds import draw_seeds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 4), (40, 70)])
@pytest.mark.parametrize("with_residual", [False, True])
def test_definition(dtype, shape, with_residual):
    torch.manual_seed(0)
    x, seeds = torch.randn(shape, dtype=dtype).requires_grad_(), draw_seeds(0.3)
    residual = torch.randn(shape, dtype=dtype).requires_grad_() if with_residual else None
    given = [x] if residual is None else [x, residual]
    ours = cpu._Dropout.apply(x, residual, seeds)
    expected = reference.drop(x, cpu.factors(shape, seeds, dtype), residual)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-7)
    weight = torch.randn(shape, dtype=dtype)
    mine = torch.autograd.grad(ours, given, weight)
    for one, other in zip(mine, torch.autograd.grad(expected, given, weight), strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives():
    x, seeds = torch.randn(5, 3, dtype=torch.float64).requires_grad_(), draw_seeds(0.3)
    added = torch.randn(5, 3, dtype=torch.float64).requires_grad_()

    def cubed(one, other):
        return cpu._Dropout.apply(one, other, seeds) ** 3

    assert torch.autograd.gradgradcheck(cubed, (x, added))


def test_inputs_that_are_not_contiguous():
    torch.manual_seed(0)
    x, seeds = torch.randn(6, 4).t(), draw_seeds(0.5)
    expected = x * cpu.factors((4, 6), seeds, x.dtype)
    torch.testing.assert_close(cpu._Dropout.apply(x, None, seeds), expected)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_shares_are_those_of_torch(rate):
    torch.manual_seed(0)
    x = torch.ones(500_000, dtype=torch.float64)
    kept = drop(x, rate)
    assert kept.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])
    limit = 4 * math.sqrt(rate * (1 - rate) / x.numel())
    assert abs((kept == 0).double().mean() - rate) < limit
    pairs = (kept[1:] == 0) & (kept[:-1] == 0)
    assert abs(pairs.double().mean() - rate**2) < 8 * limit


@pytest.mark.parametrize("place", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_dropped_by_torch(place):
    x = torch.ones(100, dtype=place)
    assert 0 < (drop(x, 0.5) == 0).sum() < 100
    assert torch.equal(drop(x, 0.0, x), 2 * x)


def test_layer():
    layer, x, h = Dropout(0.4), torch.randn(8, 9), torch.randn(8, 9)
    torch.manual_seed(3)
    one = layer(x, h)
    torch.manual_seed(3)
    torch.testing.assert_close(one, h + layer(x))
    assert torch.equal(layer.eval()(x, h), x + h)
    assert torch.equal(layer(x), x)
    assert layer(torch.zeros(0, 3)).shape == (0, 3)
    assert repr(layer) == "Dropout(p=0.4, inplace=False)"
