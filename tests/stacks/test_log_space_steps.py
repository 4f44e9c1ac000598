"""Single steps of sequences that even float64 loses: they continue a chart in log space."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from ndstack.ops.nondeterministic import Chart, reference
from ndstack.ops.nondeterministic.log_space import in_log_space
from ndstack.stacks import Nondeterministic, NondeterministicState, nondeterministic

SCALE = 3000.0
STACKS = pytest.mark.parametrize(
    "stack",
    [
        Nondeterministic(2, 2),
        Nondeterministic(2, 2, window=6),
        Nondeterministic(2, 3, bottom_fix=False),
        Nondeterministic(2, 2, vector_size=2),
        Nondeterministic(2, 2, vector_size=2, window=5),
    ],
    ids=["rns", "window", "ns", "vrns", "vrns-window"],
)


def given(stack: Nondeterministic, batch: int, n: int) -> tuple[Tensor, Tensor | None]:
    """Actions, of which the last sequence alone needs no log space, and vectors."""
    torch.manual_seed(5)
    actions = SCALE * torch.randn(batch, n, stack.action_size, dtype=torch.float64)
    actions[-1] /= SCALE
    vectors = torch.rand(batch, n, stack.push_size, dtype=torch.float64) if stack.push_size else None
    return actions.requires_grad_(), vectors


def steps(
    stack: Nondeterministic, state: NondeterministicState, actions: Tensor, vectors: Tensor | None
) -> tuple[list[Tensor], NondeterministicState]:
    """The readings of single steps, and the last state."""
    readings = []
    for t in range(actions.shape[1]):
        state = stack.step(state, actions[:, t], None if vectors is None else vectors[:, t])
        readings.append(state.reading)
    return readings, state


def expected(stack: Nondeterministic, actions: Tensor, vectors: Tensor | None) -> Tensor:
    """The readings by the equations, over the whole sequence."""
    bottom = None if stack.bottom is None else torch.sigmoid(stack.bottom)
    return in_log_space(actions, stack.setting(), vectors, bottom)[0].flatten(2)


def assert_same(readings: Tensor, whole: Tensor, actions: Tensor) -> None:
    """Equal values, and equal gradients of a sum with random factors."""
    torch.testing.assert_close(readings, whole, rtol=1e-9, atol=1e-9)
    factors = torch.randn(whole.shape, generator=torch.Generator().manual_seed(1), dtype=whole.dtype)
    found, wanted = (torch.autograd.grad((x * factors).sum(), actions)[0] for x in (readings, whole))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


@STACKS
def test_steps_of_lost_sequences_equal_the_equations(stack: Nondeterministic) -> None:
    actions, vectors = given(stack, 6, 20)
    readings, state = steps(stack, stack.start(6, dtype=torch.float64), actions, vectors)
    assert state.chart is not None
    assert state.chart.log_space is not None
    assert_same(torch.stack(readings, 1), expected(stack, actions, vectors), actions)


def test_steps_in_float32_reach_log_space_by_way_of_float64() -> None:
    stack = Nondeterministic(2, 2)
    actions, _ = given(stack, 6, 12)
    readings, _ = steps(stack, stack.start(6), actions.float(), None)
    whole = expected(stack, actions.float().double(), None)
    torch.testing.assert_close(torch.stack(readings, 1), whole.float(), rtol=1e-5, atol=1e-6)


@STACKS
def test_each_step_does_the_work_of_one_step(
    stack: Nondeterministic, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    plain = reference.Stepper.step

    def counted(self: reference.Stepper, *actions: Tensor) -> list[Tensor]:
        done.append(self.time)
        return plain(self, *actions)

    monkeypatch.setattr(reference.Stepper, "step", counted)
    actions, vectors = given(stack, 6, 24)
    _, state = steps(stack, stack.start(6, dtype=torch.float64), actions, vectors)
    assert state.chart is not None
    assert state.chart.log_space is not None
    assert len(done) == 24
    if stack.window is None:
        assert done == list(range(24))


@STACKS
def test_a_tree_of_lost_states(stack: Nondeterministic) -> None:
    """Two branches after a trunk, the second one from a state that has had a successor."""
    actions, vectors = given(stack, 6, 24)
    trunk, first, second = (slice(10), slice(10, 17), slice(17, 24))

    def part(some: slice) -> tuple[Tensor, Tensor | None]:
        return actions[:, some], None if vectors is None else vectors[:, some]

    readings, state = steps(stack, stack.start(6, dtype=torch.float64), *part(trunk))
    assert state.chart is not None
    assert state.chart.log_space is not None
    one, _ = steps(stack, state, *part(first))
    two, _ = steps(stack, state, *part(second))
    found = torch.stack([*readings, *one, *two], 1)
    wholes = []
    for branch in (first, second):
        both = [torch.cat([x[:, trunk], x[:, branch]], 1) for x in (actions, vectors) if x is not None]
        wholes.append(expected(stack, both[0], both[1] if len(both) == 2 else None))
    assert_same(found, torch.cat([wholes[0], wholes[1][:, 10:]], 1), actions)


def test_rows_of_lost_states_can_be_selected_and_detached() -> None:
    stack = Nondeterministic(2, 2)
    actions, _ = given(stack, 6, 20)
    before, state = steps(stack, stack.start(6, dtype=torch.float64), actions[:, :10], None)
    rows = torch.tensor([1, 5, 1, 0])
    after, _ = steps(stack, state.select(rows), actions[rows][:, 10:], None)
    found = torch.cat([torch.stack(before, 1)[rows], torch.stack(after, 1)], 1)
    assert_same(found, expected(stack, actions[rows], None), actions)
    cut, _ = steps(stack, state.detach(), actions[:, 10:], None)
    past = torch.cat([actions[:, :10].detach(), actions[:, 10:]], 1)
    assert_same(torch.stack(cut, 1), expected(stack, past, None)[:, 10:], actions)


def test_a_lost_state_can_be_pickled() -> None:
    stack = Nondeterministic(2, 2)
    actions = given(stack, 6, 12)[0].detach()
    _, state = steps(stack, stack.start(6, dtype=torch.float64), actions[:, :8], None)
    copy = pickle.loads(pickle.dumps(state))
    kept, _ = steps(stack, state, actions[:, 8:], None)
    again, _ = steps(stack, copy, actions[:, 8:], None)
    assert torch.equal(torch.stack(kept), torch.stack(again))


@pytest.mark.parametrize("vector_size", [None, 2])
def test_a_windowed_stack_that_lost_runs_forgets_nothing(
    vector_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, chunks and a branch, far beyond the steps that a windowed stack remembers otherwise."""
    monkeypatch.setattr(nondeterministic, "_REMEMBERED_STEPS", 12)
    stack = Nondeterministic(2, 1, vector_size, window=2, normalized=True)
    actions, vectors = given(stack, 3, 90)
    state = stack.start(3, dtype=torch.float64)
    readings = []
    for part in (slice(0, 10), slice(10, 11), slice(11, 50), slice(50, 90)):
        chosen = None if vectors is None else vectors[:, part]
        if part.start == 50:
            some, _ = steps(stack, state, actions[:, part], chosen)
            scanned, _ = stack.scan(actions[:, part], chosen, state)
            torch.testing.assert_close(torch.stack(some, 1), scanned, rtol=1e-12, atol=1e-12)
            readings += some
        else:
            found, state = stack.scan(actions[:, part], chosen, state)
            readings += found.unbind(1)
    assert sum(part.shape[1] for part in state.history) == 50
    weights = stack.log_weights(actions)
    assert_same(torch.stack(readings, 1), expected(stack, weights, vectors), actions)


def test_the_history_of_a_windowed_stack_has_few_parts_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nondeterministic, "_REMEMBERED_STEPS", 100)
    stack = Nondeterministic(2, 2, window=3)
    state = stack.start(2)
    actions = torch.randn(2, 101, stack.action_size)
    for t in range(100):
        state = stack.step(state, actions[:, t])
        assert len(state.history) <= 7
    assert torch.equal(torch.cat(state.history, 1), actions[:, :100])
    assert stack.step(state, actions[:, 100]).history == ()


@STACKS
def test_a_lost_sequence_that_becomes_invalid_is_nan_from_there_on(stack: Nondeterministic) -> None:
    """Steps, a chunk and a selection, in log space; what came before, and the other sequences, stay valid."""
    actions, vectors = given(stack, 6, 24)

    def part(first: int, last: int) -> tuple[Tensor, Tensor | None]:
        return actions[:, first:last], None if vectors is None else vectors[:, first:last]

    with torch.no_grad():
        _, state = steps(stack, stack.start(6, dtype=torch.float64), *part(0, 10))
        assert isinstance(state.chart, Chart)
        row = int(state.chart.lost[:, 0].isinf().nonzero()[0])  # the first one that is lost
        actions[row, 14, 0] = torch.inf
    before, state = steps(stack, stack.start(6, dtype=torch.float64), *part(0, 10))
    middle, state = stack.scan(*part(10, 17), state)
    turned = [5, 4, 3, 2, 1, 0]
    last_actions, last_vectors = part(17, 24)
    last, _ = stack.scan(
        last_actions[turned], None if last_vectors is None else last_vectors[turned], state.select(turned)
    )
    whole = torch.cat([torch.stack(before, 1), middle, last[turned]], 1)
    assert whole[row, 14:].isnan().all()
    assert whole[row, :14].isfinite().all()
    others = [one for one in range(6) if one != row]
    wanted = expected(stack, actions.detach()[others], None if vectors is None else vectors[others])
    torch.testing.assert_close(whole[others], wanted, rtol=1e-9, atol=1e-9)
    gradient = torch.autograd.grad(whole[:, -1].sum(), actions)[0]
    assert gradient[row].isnan().all()
    assert gradient[others].isfinite().all()
