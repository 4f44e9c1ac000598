"""The log-space reference against an enumeration of all runs."""

from __future__ import annotations

import math

import pytest
import torch
from tests.ops import oracle
from tests.ops.random_automata import assert_near, gradients, random_weights

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.ops.nondeterministic import reference
from ndstack.ops.nondeterministic.semirings import REAL, VITERBI

SIZES = [(1, 1, 6), (2, 1, 4), (1, 2, 5), (2, 2, 3), (1, 3, 3), (3, 1, 3)]


@pytest.mark.parametrize("states, symbols, n", SIZES)
@pytest.mark.parametrize("bottom_fix", [True, False], ids=["fixed", "unfixed"])
@pytest.mark.parametrize("window", [None, 1, 2, 3])
def test_readings_attention_and_gradients_are_those_of_all_runs(
    states: int, symbols: int, n: int, bottom_fix: bool, window: int | None
) -> None:
    actions = random_weights(2, n, states, symbols, zeros=0.3, seed=states + 7 * symbols)
    vectors = torch.randn(2, n, 2, dtype=torch.float64).requires_grad_()
    bottom = torch.randn(2, dtype=torch.float64).requires_grad_()
    inputs = [*actions, vectors, bottom]
    options = {"vectors": vectors, "bottom": bottom, "window": window, "bottom_fix": bottom_fix}
    expected = oracle.read(*actions, **options)
    actual = nondeterministic(*actions, **options, backend="reference", return_attention=True)
    assert_near(list(actual), list(expected), 1e-12)
    assert_near(gradients(list(actual), inputs), gradients(list(expected), inputs), 1e-12)


def test_without_vectors_the_reading_is_the_probability_of_state_and_symbol() -> None:
    actions = random_weights(2, 4, 2, 2, zeros=0.2)
    expected, _ = oracle.read(*actions)
    actual = nondeterministic(*actions, backend="reference")
    assert_near([actual], [expected], 1e-12)
    assert torch.allclose(actual.sum((2, 3)), torch.ones(2, 4, dtype=torch.float64))


def test_float32_loses_no_digits_in_log_space() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 2, 3), (2, 3, 2, 3), (2, 3, 2))
    weights = [300 * torch.randn(4, 10, *shape, generator=generator) for shape in shapes]
    vectors = torch.randn(4, 10, 2, generator=generator)
    given = [part.requires_grad_() for part in (*weights, vectors)]
    wide = [part.detach().double().requires_grad_() for part in given]
    found, expected = (
        nondeterministic(*w, vectors=v, backend="reference", return_attention=True) for *w, v in (given, wide)
    )
    assert found[0].dtype == found[1].dtype == torch.float32
    assert_near([part.double() for part in found], list(expected), 1e-6)
    for ours, theirs in zip(gradients(list(found), given), gradients(list(expected), wide), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).abs().max() < 1e-6 * max(1.0, theirs.abs().max())


def test_the_real_semiring_gives_the_weights_themselves() -> None:
    actions = [action.detach() for action in random_weights(1, 5, 2, 2, zeros=0.3)]
    logs = reference.run(*actions).alpha
    assert_near([reference.run(*(a.exp() for a in actions), semiring=REAL).alpha], [logs.exp()], 1e-12)


def test_viterbi_finds_the_best_run_and_its_gradient_is_that_run() -> None:
    push, replace, pop = random_weights(1, 4, 2, 2, zeros=0.2, seed=3)
    alpha = reference.run(push, replace, pop, semiring=VITERBI).alpha[0]
    for t, runs in enumerate(oracle.enumerate_runs(push[0], replace[0], pop[0])):
        for state in range(2):
            for symbol in range(2):
                ending = [run for run in runs if run.top == (state, symbol)]
                best = max(ending, key=lambda run: run.weight.item())
                assert alpha[t, state, symbol].item() == pytest.approx(best.weight.item())
    last = alpha[-1].max()
    found = torch.autograd.grad(last, [push, replace, pop])
    best = max(runs, key=lambda run: run.weight.item())
    tables = {"push": found[0][0], "replace": found[1][0], "pop": found[2][0]}
    assert sum(table.sum().item() for table in tables.values()) == len(best.moves)
    assert all(tables[kind][place].item() == 1.0 for kind, place in best.moves)


def test_the_gradient_of_a_reading_is_a_difference_of_posteriors() -> None:
    """Section 4.8: d log alpha[t, b] / d log weight = the share of runs at b that used it."""
    actions = random_weights(1, 4, 2, 2, zeros=0.2, seed=5)
    runs = oracle.enumerate_runs(*(action[0] for action in actions))[-1]
    total = sum(math.exp(run.weight.item()) for run in runs)
    mass = sum(math.exp(run.weight.item()) for run in runs if run.top == (1, 0))
    reading = nondeterministic(*actions)
    found = torch.autograd.grad(reading[0, -1, 1, 0], actions)
    for kind, table in zip(("push", "replace", "pop"), found, strict=True):
        for place in torch.cartesian_prod(*(torch.arange(size) for size in table[0].shape)):
            move = (kind, tuple(place.tolist()))
            users = [run for run in runs if move in run.moves]
            among_all = sum(math.exp(run.weight.item()) for run in users) / total
            among_b = sum(math.exp(run.weight.item()) for run in users if run.top == (1, 0)) / mass
            expected = mass / total * (among_b - among_all)
            assert table[0][tuple(place)].item() == pytest.approx(expected, abs=1e-12)
