"""Log space by blocks against the equations: what is left out, numbers far apart, memory, derivatives."""

from __future__ import annotations

import math
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from ndstack.nn import StackRNN
from ndstack.nn.networks.recurrent import RNNState
from ndstack.nn.storage.states import pack_state, unpack_state
from ndstack.ops.nondeterministic import Chart, guarded_steps, reference
from ndstack.ops.nondeterministic.cpu import scaled_sums
from ndstack.ops.nondeterministic.cpu.scaled_chart import ScaledChart
from ndstack.ops.nondeterministic.log_space import LogSpaceChart, in_log_space, quotient
from ndstack.ops.nondeterministic.settings import Setting, action_sizes, shaped
from ndstack.stacks import Nondeterministic, NondeterministicState

ROWS = scaled_sums.ROWS


def random_actions(
    setting: Setting, batch: int, n: int, scale: float, holes: float = 0.0, seed: int = 0
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, n, sum(action_sizes(setting.states, setting.symbols)))
    values = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.masked_fill(torch.rand(shape, generator=generator) < holes, -math.inf)


def by_reference(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """log alpha [B, n, K], and the shares of the places of each, [B, n, K, n + 1]."""
    weights = reference.run(*shaped(actions, setting), bottom_fix=setting.bottom_fix)
    alpha = weights.alpha.flatten(2)
    return alpha, quotient(weights.places.flatten(2, 3), alpha[..., None])


def assert_right(found: tuple[Tensor, Tensor], actions: Tensor, setting: Setting) -> None:
    """As exact as logarithms in float64 are, in all configuration types, however unlikely."""
    alpha, shares = by_reference(actions, setting)
    torch.testing.assert_close(found[0], alpha, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(quotient(found[1], found[0][..., None]), shares, rtol=1e-9, atol=1e-11)


def wide_blocks(chart: ScaledChart) -> int:
    """How many blocks hold logarithms."""
    return sum(
        int(chart.wide[:, block, :, block * ROWS : chart.time + 1].sum())
        for block in range(chart.time // ROWS + 1)
    )


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3 * ROWS + 1)),
    scale=st.sampled_from([0.1, 3.0, 30.0, 100.0, 1000.0, 1e4]),
    holes=st.sampled_from([0.0, 0.4, 0.8, 1.0]),
    bottom_fix=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_random_weights(
    sizes: tuple[int, int, int], scale: float, holes: float, bottom_fix: bool, seed: int
) -> None:
    states, symbols, n = sizes
    setting = Setting(states, symbols, None, bottom_fix, "cpu", True)
    actions = random_actions(setting, 2, n, scale, holes, seed)
    alpha, places, _ = ScaledChart.start(setting, 2, n).advance(actions, True)
    assert_right((alpha, places), actions, setting)


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 1000.0])
@pytest.mark.parametrize("n", [ROWS - 1, ROWS, 5 * ROWS])
def test_single_steps_in_memory_that_grows_equal_one_call(scale: float, n: int) -> None:
    setting = Setting(2, 3, None, True, "cpu", True)
    actions = random_actions(setting, 2, n, scale)
    whole, _, end = ScaledChart.start(setting, 2, n).advance(actions, False)
    chart, found = ScaledChart.start(setting, 2, 1), []
    for t in range(n):
        alpha, places, chart = chart.advance(actions[:, t : t + 1], True)
        found.append(alpha)
        assert places.shape == (2, 1, 6, t + 2)
    assert torch.equal(torch.cat(found, 1), whole)
    assert chart.time == end.time == n
    for ours, theirs in zip(chart.logarithms(), end.logarithms(), strict=True):
        assert torch.equal(ours, theirs)


def test_both_kinds_of_blocks_are_met() -> None:
    setting = Setting(2, 3, None, True, "cpu", False)
    wide = {}
    for scale in (1.0, 100.0):
        actions = random_actions(setting, 1, 40, scale)
        wide[scale] = wide_blocks(ScaledChart.start(setting, 1, 40).advance(actions, False)[2])
    assert wide[1.0] == 0
    assert wide[100.0] > 100


@pytest.mark.parametrize("gap", [50.0, 149.0, 299.0, 301.0, 420.0, 1000.0, 9000.0])
@pytest.mark.parametrize("held", [1, ROWS, 4 * ROWS])
def test_a_branch_far_behind_wins_when_its_rivals_end(gap: float, held: int) -> None:
    """Two branches, one far behind from the first step on; both push, hold and pop; then only it goes on."""
    setting = Setting(1, 3, None, True, "cpu", True)
    n = 2 * held + 2
    push = torch.full((1, n, 3, 3), -math.inf, dtype=torch.float64)
    replace, pop = push.clone(), torch.full((1, n, 3, 1), -math.inf, dtype=torch.float64)
    replace[0, 0, 0, 1], replace[0, 0, 0, 2] = 0.0, -gap
    for t in range(1, held + 1):  # both have one top symbol from then on, so they share columns
        push[0, t, 1, 1] = push[0, t, 2, 1] = 0.0
    for t in range(held + 1, 2 * held + 1):
        pop[0, t, 1, 0] = 0.0
    replace[0, -1, 2, 2] = 0.0
    actions = torch.cat([part.flatten(2) for part in (push, replace, pop)], 2)
    alpha, places, _ = ScaledChart.start(setting, 1, n).advance(actions, True)
    assert_right((alpha, places), actions, setting)
    assert alpha[0, -1].tolist() == [-math.inf, -math.inf, -gap]
    assert quotient(places[0, -1, 2], alpha[0, -1, 2]).tolist() == [1.0] + [0.0] * n


@pytest.mark.parametrize("slope", [1.0, 10.0, 50.0, 200.0])
def test_numbers_that_differ_steadily_within_a_block(slope: float) -> None:
    """Each step is better or worse than the last one by so many nats, so blocks are from narrow to wide."""
    setting = Setting(2, 2, None, True, "cpu", True)
    for sign in (-1, 1):
        actions = random_actions(setting, 1, 40, 1.0)
        actions[0, :, : 2 * 16] += sign * slope * torch.arange(40.0, dtype=torch.float64)[:, None]
        alpha, places, _ = ScaledChart.start(setting, 1, 40).advance(actions, True)
        assert_right((alpha, places), actions, setting)


def test_a_long_sequence_in_which_most_is_left_out() -> None:
    """A hundred pushes and a hundred pops, nearly certain, and all else far behind."""
    setting = Setting(1, 3, None, True, "cpu", True)
    n = 200
    actions = -40 + random_actions(setting, 1, n, 5.0)
    actions[0, : n // 2, :9] += 60.0
    actions[0, n // 2 :, 18:] += 60.0
    alpha, places, _ = ScaledChart.start(setting, 1, n).advance(actions, True)
    assert_right((alpha, places), actions, setting)


def test_two_successors_and_rows_of_a_chart() -> None:
    setting = Setting(2, 2, None, True, "cpu", True)
    actions = random_actions(setting, 3, 30, 30.0)
    _, _, trunk = ScaledChart.start(setting, 3, 12).advance(actions[:, :12], False)
    rows = torch.tensor([2, 0, 2])
    chosen = trunk.map(lambda part: part[rows])
    for chart, own, branch in (
        (trunk, slice(None), slice(12, 20)),
        (trunk, slice(None), slice(20, 30)),
        (chosen, rows, slice(12, 20)),
        (trunk, slice(None), slice(12, 13)),
    ):
        alpha, places, _ = chart.advance(actions[own, branch], True)
        past = torch.cat([actions[:, :12], actions[:, branch]], 1)[own]
        whole, shares = by_reference(past, setting)
        torch.testing.assert_close(alpha, whole[:, 12:], rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(quotient(places, alpha[..., None]), shares[:, 12:], rtol=1e-9, atol=1e-11)


def test_empty_batches() -> None:
    setting = Setting(2, 2, None, True, "cpu", True)
    alpha, places, chart = ScaledChart.start(setting, 0, 3).advance(random_actions(setting, 0, 3, 1.0), True)
    assert alpha.shape == (0, 3, 4)
    assert places.shape == (0, 3, 4, 4)
    assert chart.time == 3


@pytest.mark.parametrize("bottom_fix", [True, False])
def test_readings_without_derivatives_equal_those_with_them(bottom_fix: bool) -> None:
    setting = Setting(2, 3, None, bottom_fix, "cpu", True)
    actions = random_actions(setting, 2, 20, 300.0)
    expected = in_log_space(actions.clone().requires_grad_(), setting)
    for ours, theirs in zip(in_log_space(actions, setting), expected, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("bottom_fix", [True, False])
def test_steps_with_derivatives_continue_steps_without(bottom_fix: bool) -> None:
    setting = Setting(2, 2, None, bottom_fix, "cpu", True)
    actions = random_actions(setting, 2, 24, 300.0)
    chart = LogSpaceChart.start(setting, 2, 20, actions)
    assert isinstance(chart.chart, ScaledChart)
    _, _, chart = chart.advance(actions[:, :17], True)
    later = actions[:, 17:].clone().requires_grad_()
    reading, attention, chart = chart.advance(later, True)
    assert isinstance(chart.chart, reference.Stepper)
    copy = actions[:, 17:].clone().requires_grad_()
    expected = in_log_space(torch.cat([actions[:, :17], copy], 1), setting)
    for ours, theirs in zip((reading, attention), expected, strict=True):
        torch.testing.assert_close(ours, theirs[:, 17:], rtol=1e-9, atol=1e-11)
    found, wanted = (
        torch.autograd.grad(one.square().sum(), by)[0]
        for one, by in ((reading, later), (expected[0][:, 17:], copy))
    )
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("vector_size", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("many", [1, 256])
@torch.no_grad()
def test_steps_of_a_stack_that_float64_is_too_narrow_for(
    vector_size: int | None, dtype: torch.dtype, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By way of float64 or at once; the last sequence needs no log space."""
    monkeypatch.setattr(guarded_steps, "MANY_STEPS", many)
    stack = Nondeterministic(2, 2, vector_size)
    actions = random_actions(stack.setting(), 4, 30, 3000.0)
    actions[-1] /= 3000.0
    actions = actions.to(dtype)
    pushed = torch.rand(4, 30, 2, dtype=dtype) if vector_size else None
    state, readings = stack.start(4, dtype=dtype), []
    for part in (slice(0, 10), slice(10, 11), slice(11, 12), slice(12, 30)):
        found, state = stack.scan(actions[:, part], None if pushed is None else pushed[:, part], state)
        readings.append(found)
    assert isinstance(state.chart, Chart)
    assert state.chart.only_in_log_space
    bottom = None if stack.bottom is None else torch.sigmoid(stack.bottom)
    given_vectors = None if pushed is None else pushed.double()
    setting = stack.setting("reference")
    expected = in_log_space(actions.double(), setting, given_vectors, bottom)[0].flatten(2)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(torch.cat(readings, 1).double(), expected, rtol=tolerance, atol=tolerance)


@torch.no_grad()
def test_a_state_in_log_space_is_saved_and_continued() -> None:
    torch.manual_seed(0)
    rnn = StackRNN(3, 4, Nondeterministic(2, 2)).double()
    assert rnn.actions is not None
    rnn.actions.weight.mul_(20000.0)
    x = torch.randn(2, 20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    _, state = rnn(x[:, :12])
    _, state = rnn(x[:, 12:14], state)
    assert isinstance(state, RNNState)
    assert isinstance(state.stack, NondeterministicState)
    assert isinstance(state.stack.chart, Chart)
    assert state.stack.chart.only_in_log_space
    again = unpack_state(pack_state(state))
    assert isinstance(again, RNNState)
    assert isinstance(again.stack, NondeterministicState)
    assert again.stack.chart is None
    whole, _ = rnn(x)
    for one in (state, again, state.detach(), pickle.loads(pickle.dumps(state))):
        torch.testing.assert_close(rnn(x[:, 14:], one)[0], whole[:, 14:], rtol=1e-9, atol=1e-9)
    part = rnn(x[1:, 14:], state.select(slice(1, 2)))[0]
    torch.testing.assert_close(part, whole[1:, 14:], rtol=1e-9, atol=1e-9)
