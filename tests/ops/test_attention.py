"""Compiled causal attention with dropout, against the equation in plain torch with the same factors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ndstack.nn import DotProductAttention
from ndstack.ops.attention import attend, cpu, reference
from ndstack.ops.runtime.random_seeds import RANGE, draw_seeds

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}


def make_seeds(rate, seed=0):
    torch.manual_seed(seed)
    return draw_seeds(rate)


def both(parts, seeds):
    """Outputs and gradients, ours and those of the equation."""
    batch, n, _, heads, _ = parts.shape
    factors = cpu.factors((batch, heads, n), seeds, parts.dtype)
    found = []
    for attended in (cpu._Attention.apply(parts, seeds), reference.attend(parts, factors)):
        weight = torch.linspace(-1, 2, attended.numel(), dtype=parts.dtype).view_as(attended)
        found.append((attended, *torch.autograd.grad(attended, parts, weight)))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    batch=st.integers(1, 3),
    n=st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 33, 47, 80])),
    heads=st.integers(1, 3),
    size=st.integers(1, 9),
    rate=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    seed=st.integers(0, 10**6),
)
def test_equation(dtype, batch, n, heads, size, rate, scale, seed):
    seeds = make_seeds(rate, seed)
    parts = (scale * torch.randn(batch, n, 3, heads, size, dtype=dtype)).requires_grad_()
    ours, theirs = both(parts, seeds)
    for mine, expected in zip(ours, theirs, strict=True):
        size = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(mine / size, expected / size, rtol=0, atol=10 * TOLERANCE[dtype])


@pytest.mark.compiled
def test_gradients_are_those_of_finite_differences():
    seeds, parts = make_seeds(0.3), torch.randn(2, 6, 3, 2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: cpu._Attention.apply(given, seeds), parts)
    assert torch.autograd.gradgradcheck(lambda given: cpu._Attention.apply(given, seeds), parts)


def test_scores_that_are_hundreds_apart():
    parts = torch.randn(2, 40, 3, 2, 4, dtype=torch.float64)
    parts[:, :, :2] *= 40
    ours, theirs = both(parts.requires_grad_(), make_seeds(0.2))
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)


def test_nan_stays_where_it_may_be_seen():
    parts = torch.randn(1, 20, 3, 1, 4)
    parts[0, 7, 1] = math.nan
    attended = cpu._Attention.apply(parts, make_seeds(0.2))
    assert attended[0, :7].isfinite().all()
    assert attended[0, 7:].isnan().all()


def test_the_past_alone_counts():
    seeds = make_seeds(0.4)
    parts = torch.randn(2, 50, 3, 2, 8).requires_grad_()
    (grad,) = torch.autograd.grad(cpu._Attention.apply(parts, seeds)[:, 20].sum(), parts)
    assert (grad[:, 21:] == 0).all()
    assert (grad[:, :21, 2] != 0).any()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_share_of_weights_that_are_dropped(rate):
    n, lines = 64, 200
    factors = cpu.factors((lines, 1, n), make_seeds(rate), torch.float64)[:, 0]
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    kept = factors[:, seen]
    assert kept.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])
    deviation = math.sqrt(rate * (1 - rate))
    assert abs((kept == 0).double().mean() - rate) < 4 * deviation / math.sqrt(kept.numel())
    # Places, heads and positions are independent: no row, column or pair of neighbours stands out.
    dropped = (kept == 0).double() - rate
    for by, count in ((0, lines), (1, kept.shape[1])):
        assert (dropped.mean(by).abs() < 6 * deviation / math.sqrt(count)).all()
    for one, other in ((dropped[1:], dropped[:-1]), (dropped[:, 1:], dropped[:, :-1])):
        assert abs((one * other).mean()) < 4 * rate * (1 - rate) / math.sqrt(one.numel())


def test_seeds_give_other_factors_and_the_same_seeds_the_same():
    one, other = (cpu.factors((4, 2, 30), make_seeds(0.5, seed), torch.float32) for seed in (1, 2))
    seen = torch.ones(30, 30, dtype=torch.bool).tril()
    equal = (one == other)[:, :, seen].double().mean().item()
    assert abs(equal - 0.5) < 0.04
    assert torch.equal(one, cpu.factors((4, 2, 30), make_seeds(0.5, 1), torch.float32))


def test_rates_near_the_ends_of_their_range():
    assert draw_seeds(1 - 1e-12)[2] == RANGE - 1
    assert draw_seeds(1e-12)[2] == 0
    assert draw_seeds(0.25)[2] == RANGE // 4
    assert draw_seeds(0.25).dtype == np.uint32


def test_without_dropout_torch_does_it():
    parts = torch.randn(2, 9, 3, 2, 4)
    torch.testing.assert_close(attend(parts, 0.0), reference.attend(parts))


def test_empty_inputs():
    for shape in ((0, 5, 3, 2, 4), (2, 0, 3, 2, 4)):
        assert attend(torch.zeros(shape), 0.3).shape == (shape[0], shape[1], 8)


def test_the_layer_takes_its_random_numbers_from_torch():
    layer, x = DotProductAttention(8, 2, dropout=0.5), torch.randn(2, 12, 8)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(layer(x)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])


@pytest.mark.compiled
def test_the_mean_over_dropout_is_the_output_without_it():
    layer, x = DotProductAttention(8, 2, dropout=0.3).double(), torch.randn(1, 10, 8, dtype=torch.float64)
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = torch.stack([layer(x)[0] for _ in range(2_000)])
        expected = layer.eval()(x)[0]
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - expected).abs() < 5 * error + 1e-9).all()


@pytest.mark.compiled
def test_threads_change_nothing(monkeypatch):
    from ndstack.ops.runtime import threads

    parts, seeds = torch.randn(8, 60, 3, 4, 8).requires_grad_(), make_seeds(0.1)
    one = both(parts, seeds)[0]
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(threads, "_wanted", 3)
    for mine, other in zip(one, both(parts, seeds)[0], strict=True):
        assert torch.equal(mine, other)
