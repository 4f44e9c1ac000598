"""The log semiring by compiled code against the readable one: values and derivatives."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu import log_pops
from ndstack.ops.nondeterministic.cpu.log_semiring import COMPILED_LOG, POPS
from ndstack.ops.nondeterministic.semirings import LOG

EQUATIONS = (
    "bkuysz,bszr->bkuyr",
    "biqxsz,bszry->biqxry",
    "biqxszm,bszry->biqxrym",
    "bikqxuy,bkuyr->biqxry",
    "bikqxuym,bkuyr->biqxrym",
    "biqx,biqxry->bryi",
    "bryi,i->bry",
    "bqxry,bm->bqxrym",
    "biqx,biqxrym->brym",
)
"""Those of `reference`."""


def weights(letters: str, sizes: dict[str, int], scale: float, holes: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = [sizes[letter] for letter in letters]
    values = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.masked_fill(torch.rand(shape, generator=generator) < holes, -math.inf).requires_grad_()


def causal(gamma: Tensor) -> Tensor:
    """gamma[i -> k] as `reference` has it: the k of number j is one step after the i of number j."""
    i, k = (torch.arange(size) for size in gamma.shape[1:3])
    hidden = (k[None] < i[:, None]).view(1, len(i), len(k), 1, 1, 1, 1)
    return gamma.detach().masked_fill(hidden, -math.inf).requires_grad_()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 12)),
    scale=st.sampled_from([0.1, 30.0, 1e4]),
    holes=st.sampled_from([0.0, 0.4, 1.0]),
    margins=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    seed=st.integers(0, 10**6),
)
def test_the_pop_rule_on_a_part_of_a_chart(
    sizes: tuple[int, int, int, int], scale: float, holes: float, margins: tuple[int, int], seed: int
) -> None:
    """As `reference` gives it: a view of a larger chart, without a copy."""
    batch, states, symbols, k = sizes
    lengths = dict(zip("bqxuyr", (batch, states, symbols, states, symbols, states), strict=True))
    lengths |= {"i": k + 1, "k": k}
    gamma = causal(weights("bikqxuy", lengths, scale, holes, seed))
    room = torch.full((batch, *(size + sum(margins) for size in (k + 1, k)), *gamma.shape[3:]), math.nan)
    here = slice(margins[0], margins[0] + k + 1), slice(margins[0], margins[0] + k)
    chart = room.double()
    chart[:, *here] = gamma.detach()
    view = chart[:, *here].requires_grad_()
    extended = weights("bkuyr", lengths, scale, holes, seed + 1)
    assert log_pops.fits(view, extended)
    theirs, ours = LOG.einsum(POPS, gamma, extended), COMPILED_LOG.einsum(POPS, view, extended)
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    finite = theirs.isfinite()
    assert torch.allclose(ours[finite], theirs[finite], rtol=1e-13, atol=1e-12)
    if not finite.any():
        return
    factors = torch.linspace(-1, 2, theirs.numel(), dtype=torch.float64).view_as(theirs)
    expected = torch.autograd.grad((theirs[finite] * factors[finite]).sum(), [gamma, extended])
    found = torch.autograd.grad((ours[finite] * factors[finite]).sum(), [view, extended])
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("equation", EQUATIONS)
@settings(max_examples=25, deadline=None)
@given(
    small=st.lists(st.integers(1, 3), min_size=10, max_size=10),
    times=st.integers(0, 21),
    scale=st.sampled_from([0.1, 30.0, 1e4]),
    holes=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_sums_and_derivatives_are_those_of_the_readable_semiring(
    equation: str, small: list[int], times: int, scale: float, holes: float, seed: int
) -> None:
    sizes = dict(zip("bqxuyszrmi", small, strict=True)) | {"k": times}
    if "k" not in equation:
        sizes["i"] = max(times, 1)
    left, right = equation.split("->")[0].split(",")
    given = [weights(left, sizes, scale, holes, seed), weights(right, sizes, scale, holes, seed + 1)]
    if equation == POPS and sizes["i"] == times + 1:
        given[0] = causal(given[0])
    if times == 0 and "k" in equation:
        assert COMPILED_LOG.einsum(equation, *given).isneginf().all()
        return
    theirs, ours = (semiring.einsum(equation, *given) for semiring in (LOG, COMPILED_LOG))
    assert ours.shape == theirs.shape
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    finite = theirs.isfinite()
    assert torch.allclose(ours[finite], theirs[finite], rtol=1e-13, atol=1e-12)
    factors = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected, found = (
        torch.autograd.grad((result[finite] * factors[finite]).sum(), given) for result in (theirs, ours)
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_long_sum_of_small_terms_beside_a_large_one() -> None:
    """log(e^0 + 10,000 e^-30) = log1p(10,000 e^-30), also where the large term is the last."""
    terms = torch.full((1, 10_001), -30.0, dtype=torch.float64)
    terms[0, -1] = 0.0
    nothing = torch.zeros(10_001, dtype=torch.float64)
    found = COMPILED_LOG.einsum("ai,i->a", terms, nothing)
    assert found.item() == pytest.approx(math.log1p(10_000 * math.exp(-30.0)), rel=1e-12)


def test_second_derivatives_are_refused() -> None:
    terms = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    found = COMPILED_LOG.einsum("ai,i->a", terms, torch.zeros(3, dtype=torch.float64))
    with pytest.raises(NdstackError, match="second derivatives"):
        torch.autograd.grad(found.sum(), terms, create_graph=True)
