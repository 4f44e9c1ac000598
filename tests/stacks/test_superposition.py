"""The superposition stack against section 3.3.2's equations, written out as slow loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.functional import nondeterministic, superposition
from ndstack.ops import superposition as kernel
from ndstack.stacks import Superposition
from tests.stacks.functions import assert_same, gradients, superposition_inputs

few = settings(max_examples=40, deadline=None, derandomize=True)


def slow(push: Tensor, pop: Tensor, noop: Tensor, vectors: Tensor, depth: int | None) -> Tensor:
    """V_t[i] one cell at a time."""
    batch, n, m = vectors.shape
    rows = []
    for b in range(batch):
        cells: dict[int, Tensor] = {}
        readings = []
        for t in range(n):
            zero = torch.zeros(m, dtype=vectors.dtype)
            cells[0] = vectors[b, t]
            new = {}
            for i in range(1, t + 2):
                if depth is None or i <= depth:
                    new[i] = (
                        push[b, t] * cells.get(i - 1, zero)
                        + noop[b, t] * cells.get(i, zero)
                        + pop[b, t] * cells.get(i + 1, zero)
                    )
            cells = new
            readings.append(cells[1])
        rows.append(torch.stack(readings) if readings else vectors[b])
    return torch.stack(rows) if rows else vectors


@few
@given(
    batch=st.integers(0, 3),
    n=st.integers(0, 9),
    m=st.integers(1, 4),
    depth=st.none() | st.integers(1, 10),
    seed=st.integers(0, 10**6),
    normalized=st.booleans(),
    plain=st.booleans(),
)
def test_readings_and_gradients_follow_the_equations(
    batch: int, n: int, m: int, depth: int | None, seed: int, normalized: bool, plain: bool
) -> None:
    leaves = superposition_inputs(batch, n, m, seed, normalized)
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(kernel, "compilable", lambda tensor: False)
        readings = superposition(*leaves, depth=depth)
    expected = slow(*leaves, depth)
    assert readings.shape == (batch, n, m)
    assert_same(readings, expected, leaves)


@pytest.mark.parametrize("depth", [None, *range(1, 13)])
def test_every_depth_limit(depth: int | None, path: str) -> None:
    leaves = superposition_inputs(2, 12, 2)
    expected = slow(*leaves, depth)
    torch.testing.assert_close(superposition(*leaves, depth=depth), expected)


def test_a_depth_as_great_as_the_length_changes_nothing(path: str) -> None:
    leaves = superposition_inputs(2, 9, 3)
    assert torch.equal(superposition(*leaves, depth=9), superposition(*leaves))


def test_gradcheck(path: str) -> None:
    leaves = superposition_inputs(2, 6, 2)
    assert torch.autograd.gradcheck(lambda *args: superposition(*args, depth=4), leaves)
    assert torch.autograd.gradcheck(superposition, leaves)


@few
@given(
    actions=st.lists(st.sampled_from(["push", "pop", "noop"]), max_size=30),
    depth=st.none() | st.integers(1, 5),
)
def test_weights_of_0_and_1_are_an_ordinary_stack(actions: list[str], depth: int | None) -> None:
    stack: list[float] = []
    tops = []
    for t, action in enumerate(actions):
        if action == "push":
            stack.append(t + 1.0)
            stack = stack[-depth:] if depth else stack
        elif action == "pop" and stack:
            stack.pop()
        tops.append(stack[-1] if stack else 0.0)
    weights = [torch.tensor([[float(a == kind) for a in actions]]) for kind in ("push", "pop", "noop")]
    vectors = torch.arange(1.0, len(actions) + 1)[None, :, None]
    readings = superposition(*weights, vectors, depth=depth)
    assert readings.flatten().tolist() == tops


def test_a_scan_saves_less_than_a_quadratic_amount() -> None:
    def saved(n: int) -> int:
        sizes = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            superposition(*superposition_inputs(1, n, 4))
        return sum(sizes)

    assert saved(1024) < 10 * saved(256)  # 8 times for n^1.5, 16 for n^2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"push": torch.zeros(2, 4)},
            "push of shape [2, 4] given, expected [batch, length] = [2, 3]",
        ),
        ({"vectors": torch.zeros(2, 3)}, "vectors of shape [2, 3] given"),
        ({"vectors": torch.zeros(2, 3, 0)}, "a size of at least 1"),
        ({"vectors": torch.zeros(2, 3, 4, dtype=torch.int64)}, "expected floating point"),
        ({"noop": torch.zeros(2, 3, dtype=torch.float64)}, "noop is torch.float64 on cpu"),
        ({"depth": 0}, "depth is 0, expected 1 or more"),
    ],
)
def test_errors_say_what_was_given_in_one_line(change: dict[str, object], message: str) -> None:
    given = {name: torch.zeros(2, 3) for name in ("push", "pop", "noop")}
    with pytest.raises(NdstackError) as caught:
        superposition(**{**given, "vectors": torch.zeros(2, 3, 4), **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_stack_is_the_function_of_the_softmax() -> None:
    torch.manual_seed(0)
    actions = torch.randn(2, 7, 3, dtype=torch.float64)
    pushed = torch.rand(2, 7, 5, dtype=torch.float64)
    push, noop, pop = actions.softmax(-1).unbind(-1)
    for depth in (None, 3):
        readings, _ = Superposition(5, depth)(actions, pushed)
        torch.testing.assert_close(readings, superposition(push, pop, noop, pushed, depth=depth))


def test_separate_stacks_are_stacks_side_by_side(path: str) -> None:
    torch.manual_seed(0)
    sizes = (2, 4, 1)
    actions = torch.randn(3, 6, 9, dtype=torch.float64)
    pushed = torch.rand(3, 6, 7, dtype=torch.float64)
    together, _ = Superposition(sizes)(actions, pushed)
    apart = [
        Superposition(size)(own_actions, own_pushed)[0]
        for size, own_actions, own_pushed in zip(
            sizes, actions.split(3, -1), pushed.split(sizes, -1), strict=True
        )
    ]
    torch.testing.assert_close(together, torch.cat(apart, -1))


def test_synchronized_stacks_are_one_stack_of_longer_vectors() -> None:
    actions, pushed = torch.randn(2, 5, 3), torch.rand(2, 5, 6)
    stacks = Superposition((1, 2, 3), synchronized=True)
    assert (stacks.action_size, stacks.push_size) == (3, 6)
    assert torch.equal(stacks(actions, pushed)[0], Superposition(6)(actions, pushed)[0])


def test_a_limited_stack_runs_for_ever_in_constant_memory() -> None:
    stack = Superposition(2, depth=10)
    state = stack.start(1)
    for _ in range(5):
        _, state = stack.scan(torch.randn(1, 2000, 3), torch.rand(1, 2000, 2), state)
        assert state.cells.shape == (1, 1, 10, 2)


@pytest.mark.parametrize("size", [0, (), (3, 0), -1, 2.0, True, "3", (3, 2.5)])
def test_sizes_that_make_no_sense(size: int | tuple[int, ...]) -> None:
    with pytest.raises(NdstackError, match=r"size is .*expected|no sizes given, expected"):
        Superposition(size)


def vector_automaton(log_weights: Tensor, vectors: Tensor) -> Tensor:
    """VRNS with one state and one symbol, from (push, noop, pop) [B, n, 3]; v_0 is 0."""
    push, replace, pop = log_weights.unbind(-1)
    readings = nondeterministic(
        push[..., None, None, None, None],
        replace[..., None, None, None, None],
        pop[..., None, None, None],
        vectors=vectors,
    )
    assert isinstance(readings, Tensor)
    return readings[:, :, 0, 0]


@few
@given(kinds=st.lists(st.booleans(), min_size=1, max_size=14), seed=st.integers(0, 10**6))
def test_it_is_a_vector_automaton_where_no_run_pops_the_bottom(kinds: list[bool], seed: int) -> None:
    """Section 9.2: |Q| = |Gamma| = 1, normalised weights, v_0 = 0.

    The steps marked in `kinds` only push; the others do anything that no run could pop the bottom
    with.
    """
    lowest = 0
    allowed = []
    for only_push in kinds:
        allowed.append([True, not only_push, not only_push and lowest > 0])
        lowest = lowest + 1 if only_push else max(lowest - 1, 0)
    torch.manual_seed(seed)
    logits = torch.randn(2, len(kinds), 3, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(2, len(kinds), 3, dtype=torch.float64, requires_grad=True)
    log_weights = logits.masked_fill(~torch.tensor(allowed), -torch.inf).log_softmax(-1)
    push, noop, pop = log_weights.exp().unbind(-1)
    ours, theirs = superposition(push, pop, noop, vectors), vector_automaton(log_weights, vectors)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    for a, b in zip(gradients(ours, (logits, vectors)), gradients(theirs, (logits, vectors)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


def test_what_each_does_when_a_run_tries_to_pop_the_bottom() -> None:
    half = torch.tensor([[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]])
    always = torch.tensor([[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    vectors = torch.tensor([[[8.0], [2.0]]])
    for weights, superposed, renormalized in (
        (half, [4.0, 4.0], [8.0, 8.0]),
        (always, [0.0, 2.0], [0.0, 0.0]),
    ):
        push, noop, pop = weights.unbind(-1)
        assert superposition(push, pop, noop, vectors).flatten().tolist() == superposed
        assert vector_automaton(weights.log(), vectors).flatten().tolist() == renormalized
