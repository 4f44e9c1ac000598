"""Compiled -log p of symbols, against the equation in plain torch and against torch's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ndstack.errors import NdstackError
from ndstack.nn import models
from ndstack.ops.cross_entropy import MOST, cpu, in_one_operation, reference

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def random_arguments(dtype, batch, n, size, symbols, possible, scale):
    hidden = torch.randn(batch, n, size, dtype=dtype).requires_grad_()
    weight = (scale * torch.randn(symbols, size, dtype=dtype)).requires_grad_()
    bias = torch.randn(symbols, dtype=dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(-1, possible, (batch, n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    batch=st.integers(0, 3),
    n=st.sampled_from([1, 2, 7, 300]),
    size=st.integers(1, 9),
    symbols=st.integers(1, 9),
    fewer=st.booleans(),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 10**6),
)
def test_equation(dtype, batch, n, size, symbols, fewer, scale, seed):
    torch.manual_seed(seed)
    possible = max(1, symbols - fewer)
    *given, targets = random_arguments(dtype, batch, n, size, symbols, possible, scale)
    ours = cpu.surprisals(*given, targets=targets, symbols=possible)
    expected = reference.surprisals(*given, targets=targets, symbols=possible)
    torch.testing.assert_close(ours, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)
    received = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, given, received)
    for mine, other in zip(torch.autograd.grad(ours, given, received), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=20 * TOLERANCE[dtype] * max(1, scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "n"), [(2, 3), (3, 200), (0, 3)])
def test_the_sum_over_a_count(dtype, batch, n):
    *given, targets = random_arguments(dtype, batch, n, 4, 5, 4, 1.0)
    ours = cpu.surprisals(*given, targets=targets, symbols=4, count=7)
    expected = cpu.surprisals(*given, targets=targets, symbols=4).sum() / 7
    torch.testing.assert_close(ours, expected)
    theirs = torch.autograd.grad(3 * expected, given)
    for mine, other in zip(torch.autograd.grad(3 * ours, given), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_a_count_of_nothing_is_nan():
    *given, targets = random_arguments(torch.float32, 0, 3, 4, 5, 4, 1.0)
    assert cpu.surprisals(*given, targets=targets, symbols=4, count=0).isnan()


def test_torchs_own():
    *given, targets = random_arguments(torch.float64, 3, 5, 4, 6, 6, 1.0)
    logits = torch.nn.functional.linear(*given)
    theirs = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=-1
    )
    torch.testing.assert_close(cpu.surprisals(*given, targets=targets, symbols=6).flatten(), theirs)


@pytest.mark.compiled
def test_gradients_are_those_of_finite_differences():
    *given, targets = random_arguments(torch.float64, 2, 3, 4, 5, 4, 1.0)
    assert torch.autograd.gradcheck(lambda *some: cpu.surprisals(*some, targets=targets, symbols=4), given)
    for count in (None, 3):
        assert torch.autograd.gradgradcheck(
            lambda *some, count=count: cpu.surprisals(*some, targets=targets, symbols=4, count=count), given
        )


def test_a_graph_that_is_kept_gives_the_same_again():
    *given, targets = random_arguments(torch.float32, 2, 3, 4, 5, 5, 1.0)
    total = cpu.surprisals(*given, targets=targets, symbols=5).sum()
    first, second = (torch.autograd.grad(total, given, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_logits_that_are_thousands_apart_and_nan():
    hidden = torch.tensor([[[1.0], [-1.0], [math.nan]]])
    weight, bias = torch.tensor([[2000.0], [-2000.0]]), torch.zeros(2)
    found = cpu.surprisals(hidden, weight, bias, torch.tensor([[1, 1, 0]]), 2)[0].tolist()
    assert found[:2] == [4000.0, 0.0]
    assert math.isnan(found[2])


def test_symbols_that_are_not_possible_are_refused():
    *given, _ = random_arguments(torch.float32, 1, 2, 3, 4, 4, 1.0)
    with pytest.raises(NdstackError, match="symbol index 3 given, expected indices below 3"):
        cpu.surprisals(*given, targets=torch.tensor([[0, 3]]), symbols=3)


def test_when_it_is_one_operation():
    assert in_one_operation(torch.zeros(5, 2), MOST // 10)
    assert not in_one_operation(torch.zeros(5, 2), MOST // 10 + 1)
    assert not in_one_operation(torch.zeros(3, 2, dtype=torch.bfloat16), 1)
    with torch.autocast("cpu"):
        assert not in_one_operation(torch.zeros(3, 2), 1)


@pytest.mark.parametrize("name", ["lstm", "rns-2-3", "tf"])
@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("words", [["ab", "ba"], ["a", "bba", ""]])
def test_a_model_gives_the_same_as_from_its_logits(name, eos, words):
    torch.manual_seed(0)
    model = models.build(name, ("a", "b")).eval()
    at_once = model.log_probability(words, eos=eos), model.cross_entropy(words, eos=eos, per="symbol")
    called = []
    model.output.register_forward_hook(lambda *given: called.append(given))  # so that the layer is called
    for one, other in zip(
        at_once,
        (model.log_probability(words, eos=eos), model.cross_entropy(words, eos=eos, per="symbol")),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert len(called) == 2


def test_a_model_whose_call_is_changed_is_called():
    model = models.build("lstm", ("a", "b"))
    called = []
    model.register_forward_hook(lambda *given: called.append(given))
    model.cross_entropy(["ab"])
    assert called
