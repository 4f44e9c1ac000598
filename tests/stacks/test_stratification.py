"""The stratification stack against section 3.3.1's equations, written out as slow loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.functional import stratification
from ndstack.ops import stratification as kernel
from ndstack.stacks import Stratification, StratificationState
from tests.stacks.functions import assert_same, stratification_inputs

few = settings(max_examples=40, deadline=None, derandomize=True)


def slow(push: Tensor, pop: Tensor, vectors: Tensor) -> Tensor:
    """s_t[i] and r_t one element at a time; max(0, x) is relu, min is torch.minimum."""
    batch, n, _ = vectors.shape
    rows = []
    for b in range(batch):
        strengths: list[Tensor] = []
        readings = []
        for t in range(n):
            strengths = [
                torch.relu(s - torch.relu(pop[b, t] - sum(strengths[i + 1 :])))
                for i, s in enumerate(strengths)
            ] + [push[b, t]]
            reading = torch.zeros_like(vectors[b, t])
            for i, s in enumerate(strengths):
                room = torch.relu(1 - push.new_zeros(()) - sum(strengths[i + 1 :]))
                reading = reading + torch.minimum(s, room) * vectors[b, i]
            readings.append(reading)
        rows.append(torch.stack(readings) if readings else vectors[b])
    return torch.stack(rows) if rows else vectors


@few
@given(
    batch=st.integers(0, 3),
    n=st.integers(0, 9),
    m=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    thickest=st.sampled_from([0.1, 0.5, 1.0, 4.0]),
    plain=st.booleans(),
)
def test_readings_and_gradients_follow_the_equations(
    batch: int, n: int, m: int, seed: int, thickest: float, plain: bool
) -> None:
    leaves = stratification_inputs(batch, n, m, seed, thickest)
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(kernel, "compilable", lambda tensor: False)
        readings = stratification(*leaves)
    assert readings.shape == (batch, n, m)
    assert_same(readings, slow(*leaves), leaves)


@few
@given(
    weights=st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        min_size=1,
        max_size=9,
    ),
    plain=st.booleans(),
)
def test_ties_have_the_derivatives_of_relu_and_minimum(
    weights: list[tuple[float, float]], plain: bool
) -> None:
    push, pop = torch.tensor(weights, dtype=torch.float64)[None].unbind(-1)
    vectors = torch.arange(2.0 * len(weights), dtype=torch.float64).reshape(1, -1, 2)
    leaves = tuple(leaf.clone().requires_grad_() for leaf in (push, pop, vectors))
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(kernel, "compilable", lambda tensor: False)
        assert_same(stratification(*leaves), slow(*leaves), leaves)


def test_gradcheck(path: str) -> None:
    assert torch.autograd.gradcheck(stratification, stratification_inputs(2, 7, 2))
    assert torch.autograd.gradcheck(stratification, stratification_inputs(2, 7, 2, thickest=0.3))


@few
@given(actions=st.lists(st.sampled_from(["push", "pop", "both", "none"]), max_size=30))
def test_thicknesses_of_0_and_1_are_an_ordinary_stack(actions: list[str]) -> None:
    stack: list[float] = []
    tops = []
    for t, action in enumerate(actions):
        if action in ("pop", "both") and stack:
            stack.pop()
        if action in ("push", "both"):
            stack.append(t + 1.0)
        tops.append(stack[-1] if stack else 0.0)
    push = torch.tensor([[float(a in ("push", "both")) for a in actions]])
    pop = torch.tensor([[float(a in ("pop", "both")) for a in actions]])
    vectors = torch.arange(1.0, len(actions) + 1)[None, :, None]
    assert stratification(push, pop, vectors).flatten().tolist() == tops


def test_the_reading_is_the_top_slice_of_thickness_1(path: str) -> None:
    push = torch.tensor([[0.5, 0.75, 0.5]])
    pop = torch.tensor([[0.0, 0.0, 0.25]])
    vectors = torch.eye(3)[None]
    readings = stratification(push, pop, vectors)
    expected = torch.tensor([[0.5, 0.0, 0.0], [0.25, 0.75, 0.0], [0.0, 0.5, 0.5]])
    torch.testing.assert_close(readings[0], expected)


def test_the_compiled_and_the_plain_version_agree_on_long_sequences() -> None:
    leaves = stratification_inputs(2, 300, 3, thickest=0.4)
    ours = stratification(*leaves)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compilable", lambda tensor: False)
        assert_same(ours, stratification(*leaves), leaves)


def test_a_scan_saves_a_linear_amount() -> None:
    sizes = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    n, m = 500, 4
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        stratification(*stratification_inputs(1, n, m))
    assert 0 < sum(sizes) <= n * (m + 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pop": torch.zeros(2, 4)},
            "pop of shape [2, 4] given, expected [batch, length] = [2, 3]",
        ),
        ({"vectors": torch.zeros(3)}, "vectors of shape [3] given"),
        ({"push": torch.zeros(2, 3, dtype=torch.float64)}, "push is torch.float64 on cpu"),
    ],
)
def test_errors_say_what_was_given_in_one_line(change: dict[str, Tensor], message: str) -> None:
    given = {"push": torch.zeros(2, 3), "pop": torch.zeros(2, 3), "vectors": torch.zeros(2, 3, 4)}
    with pytest.raises(NdstackError) as caught:
        stratification(**{**given, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_stack_is_the_function_of_the_sigmoid() -> None:
    torch.manual_seed(0)
    actions = torch.randn(2, 7, 2, dtype=torch.float64)
    pushed = torch.rand(2, 7, 5, dtype=torch.float64)
    push, pop = actions.sigmoid().unbind(-1)
    readings, state = Stratification(5)(actions, pushed)
    torch.testing.assert_close(readings, stratification(push, pop, pushed))
    assert torch.equal(state.vectors, pushed)
    assert state.strengths.shape == (2, 7)


def test_a_size_that_makes_no_sense() -> None:
    with pytest.raises(NdstackError, match="size is 0, expected 1 or more"):
        Stratification(0)


@pytest.mark.parametrize("how", ["step", "scan"])
def test_an_element_that_is_gone_gets_no_derivative(how: str) -> None:
    stack = Stratification(2)
    rows = [[0.9, 1, 2], [0.0, 3, 4], [0.8, 5, 6]]
    elements = torch.tensor([rows], dtype=torch.float64, requires_grad=True)
    state = StratificationState(elements.new_zeros(1, 2), elements)
    actions, pushed = torch.full((1, 1, 2), -3.0), torch.ones(1, 1, 2)
    if how == "step":
        state = stack.step(state, actions[:, 0], pushed[:, 0])
    else:
        _, state = stack.scan(actions, pushed, state)
    state.strengths.sum().backward()
    assert elements.grad is not None
    assert elements.grad[0, :, 0].tolist() == [1, 0, 1]
