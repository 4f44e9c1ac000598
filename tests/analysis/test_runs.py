"""Runs against the enumeration of all of them."""

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ndstack.analysis import Names, StackRuns, TransitionWeights, most_probable_stacks, stack_wfa_marginals
from ndstack.analysis.run_tables import summary_lines
from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic import reference
from tests.analysis.automata import SETTINGS, every_run, key, random_weights

ENDS = [None, [(0, 0)], [(1, 0), (0, 1)]]


def cases(seed, **options):
    """Runs with every setting, time and kind of end, beside the enumeration."""
    for window, fix in SETTINGS:
        weights = random_weights(seed, window=window, bottom_fix=fix, **options)
        runs, enumerated = StackRuns(weights), every_run(weights)
        for time, end in itertools.product(range(5), ENDS):
            wanted = [r for r in enumerated[time] if end is None or (r[2], r[3][-1]) in end]
            yield runs.at(time, end), wanted


def test_the_best_of_very_many_equal_runs_are_found_without_looking_at_all(monkeypatch):
    """All runs weigh the same; a search that opens the oldest of equal partial runs first never ends."""
    n, shape = 40, (2, 2, 2, 2)
    same = (np.zeros((n, *shape)), np.zeros((n, *shape)), np.zeros((n, *shape[:3])))
    runs = StackRuns(TransitionWeights(*same, Names.numbered("a" * n, 2, 2)))
    opened = []
    options = type(runs.chart).options

    def count(chart, item):
        opened.append(item)
        assert len(opened) < 2000
        return options(chart, item)

    monkeypatch.setattr(type(runs.chart), "options", count)
    found = runs.k_best(5)
    assert len({key(run) for run in found}) == 5
    assert [run.log_weight for run in found] == [0.0] * 5
    assert runs.log_count > 50


@pytest.mark.parametrize("seed", range(3))
def test_all_runs_in_order(seed):
    for runs, wanted in cases(seed):
        found = list(runs.in_order())
        assert runs.count() == len(found) == len(wanted)
        weights = {moves: weight for weight, moves, *_ in wanted}
        assert {key(run) for run in found} == set(weights)
        for run in found:
            assert run.log_weight == pytest.approx(weights[key(run)], abs=1e-12)
        logs = [run.log_weight for run in found]
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(logs))
        if wanted:
            assert runs.best().log_weight == pytest.approx(max(weights.values()), abs=1e-12)
            assert [key(r) for r in runs.k_best(3)] == [key(r) for r in found[:3]]
            assert math.fsum(run.probability for run in found) == pytest.approx(1, abs=1e-12)
        else:
            with pytest.raises(NdstackError, match="no run survives"):
                runs.best()


@pytest.mark.parametrize("scale", [2.0, 400.0])
@pytest.mark.parametrize("window, fix", SETTINGS)
def test_charts_that_are_almost_empty(window, fix, scale):
    """As those of compiled grammars are; with the greater scale, most shares underflow."""
    survived = 0
    for seed in range(6):
        weights = random_weights(seed, n=7, window=window, bottom_fix=fix, scale=scale, zeros=0.75)
        enumerated = every_run(weights)
        for time in range(3, 8):
            runs = StackRuns(weights).at(time)
            logs = sorted((run[0] for run in enumerated[time]), reverse=True)
            assert runs.count() == len(logs)
            survived += len(logs)
            if logs:
                assert runs.log_weight == pytest.approx(np.logaddexp.reduce(logs), rel=1e-12, abs=1e-9)
                found = [run.log_weight for run in itertools.islice(runs.in_order(), 20)]
                assert found == pytest.approx(logs[:20], rel=1e-12, abs=1e-9)
                masses = {}
                for weight, _, state, stack in enumerated[time]:
                    masses[state, stack] = np.logaddexp(masses.get((state, stack), -math.inf), weight)
                best = max(masses.values()) - runs.log_weight
                assert most_probable_stacks(runs, 1)[0].probability == pytest.approx(math.exp(best))
    assert survived > 40


@pytest.mark.parametrize("seed", range(3))
def test_entropy_weight_and_stacks(seed):
    for runs, wanted in cases(seed):
        if not wanted:
            assert runs.log_weight == -math.inf
            continue
        logs = np.array([weight for weight, *_ in wanted])
        total = np.logaddexp.reduce(logs)
        p = np.exp(logs - total)
        assert runs.log_weight == pytest.approx(total, abs=1e-12)
        assert runs.entropy() == pytest.approx(-(p @ np.log(p)), abs=1e-10)
        stacks = Counter()
        for share, (_, _, state, stack) in zip(p, wanted, strict=True):
            stacks[state, stack] += share
        found = most_probable_stacks(runs, len(stacks) + 1)
        assert [s.probability for s in found] == pytest.approx(
            sorted(stacks.values(), reverse=True), abs=1e-12
        )
        assert {(s.state, s.stack): s.probability for s in found} == pytest.approx(dict(stacks), abs=1e-12)


def test_stack_graph_holds_the_weight_of_every_stack():
    for runs, wanted in cases(5, scale=1.0):
        stacks = Counter()
        names = runs.weights.names
        for weight, _, state, stack in wanted:
            stacks[names.states[state], tuple(names.symbols[x] for x in stack)] += math.exp(weight)
        graph = stack_wfa_marginals(runs)
        found = {stack: math.exp(log) for stack, log in graph.wfa.stacks().items()}
        assert found == pytest.approx(dict(stacks))
        into = Counter()
        for edge, p in zip(graph.wfa.edges, graph.edges, strict=True):
            into[edge.target] += p
        assert into == pytest.approx({node: p for node, p in graph.nodes.items() if node.time >= 0})


def test_the_most_probable_paths_of_a_stack_graph_are_whole():
    for runs, wanted in cases(6):
        everything = stack_wfa_marginals(runs)
        paths = dict(everything.wfa.paths())
        for most in (1, 4, 9):
            graph = stack_wfa_marginals(runs, most=most)
            kept = dict(graph.wfa.paths())
            assert bool(kept) == bool(wanted)
            assert {edge for path in kept for edge in path} == set(graph.wfa.edges)
            if kept and len(kept) < len(paths):
                assert max(kept.values()) == max(paths.values())
                assert len(graph.edges) <= max(most, len(max(kept, key=len)) * len(kept))


@pytest.mark.parametrize("scale", [2.0, 200.0])  # the latter leaves the range of floats
@pytest.mark.parametrize("window, fix", SETTINGS)
def test_posterior_is_the_gradient_of_log_alpha(window, fix, scale):
    weights = random_weights(7, n=6, states=2, symbols=3, window=window, bottom_fix=fix, scale=scale)
    given = [
        torch.from_numpy(part)[None].requires_grad_() for part in (weights.push, weights.replace, weights.pop)
    ]
    alpha = reference.run(*given, window=window, bottom_fix=fix).alpha[0]
    runs = StackRuns(weights)
    for time, end in [(6, (1, 2)), (6, None), (4, (0, 0)), (1, None)]:
        log = alpha[time - 1].flatten().logsumexp(0) if end is None else alpha[time - 1][end]
        found = runs.at(time, end and [end])
        assert found.log_weight == pytest.approx(log.item(), abs=1e-12 * scale)
        if log == -math.inf:
            continue
        gradients = torch.autograd.grad(log, given, retain_graph=True, materialize_grads=True)
        posterior = (found.posterior.push, found.posterior.replace, found.posterior.pop)
        for mine, gradient in zip(posterior, gradients, strict=True):
            np.testing.assert_allclose(mine, gradient[0, :time].numpy(), atol=1e-12 * scale)
        np.testing.assert_allclose(found.posterior.actions().sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("window, fix", SETTINGS[:4])
def test_samples_follow_the_posterior(window, fix):
    weights = random_weights(3, n=3, window=window, bottom_fix=fix, scale=0.7)
    runs = StackRuns(weights).at(end=[(0, 0), (1, 1), (1, 0)])
    everything = list(runs.in_order())
    count = 20_000
    drawn = Counter(key(run) for run in runs.sample(count, np.random.default_rng(0)))
    assert sum(drawn.values()) == count
    assert set(drawn) <= {key(run) for run in everything}
    expected = np.array([run.probability * count for run in everything])
    observed = np.array([drawn[key(run)] for run in everything])
    common = expected >= 5
    groups = [np.append(part[common], part[~common].sum()) for part in (observed, expected)]
    if groups[1][-1] == 0:
        groups = [part[:-1] for part in groups]
    assert len(groups[0]) > 3
    assert chisquare(*groups).pvalue > 0.001
    wrong = groups[1] * np.linspace(0.8, 1.2, len(groups[1]))  # the test would notice a tenth too much
    assert chisquare(groups[0], wrong * count / wrong.sum()).pvalue < 1e-6


def test_weights_very_far_apart():
    weights = random_weights(11, n=5, scale=400.0)
    wanted = sorted((weight for weight, *_ in every_run(weights)[5]), reverse=True)
    assert [run.log_weight for run in StackRuns(weights).k_best(20)] == pytest.approx(wanted[:20])
    assert StackRuns(weights).log_weight == pytest.approx(wanted[0])


def test_long_sequences_keep_runs_that_are_lost_in_floats():
    """Pushes at first weigh e^-20 a step against replacing, but only they can be popped in the end."""
    n = 60
    push = np.full((n, 1, 1, 1, 1), -math.inf)
    replace, pop = push.copy(), push[..., 0].copy()
    push[: n // 2], replace[: n // 2], pop[n // 2 :] = -20.0, 0.0, 0.0
    weights = TransitionWeights(push, replace, pop, Names.numbered("a" * n, 1, 1))
    runs = StackRuns(weights)
    assert runs.count() == 1
    assert runs.log_weight == pytest.approx(-20.0 * (n // 2))
    assert [move.action for move in runs.best().moves] == ["push"] * 30 + ["pop"] * 30
    np.testing.assert_allclose(runs.posterior.actions()[: n // 2, 0], 1)


def test_what_cannot_be_asked(monkeypatch):
    weights = random_weights(0)
    with pytest.raises(NdstackError, match="time 9 given, expected 0 to 4"):
        StackRuns(weights).at(9)
    with pytest.raises(NdstackError, match="no accept states"):
        StackRuns(weights).accepting()
    with pytest.raises(NdstackError, match="no configuration type"):
        StackRuns(weights).at(end=[(2, 0)])
    with pytest.raises(NdstackError, match="pop has shape"):
        dataclasses.replace(weights, pop=weights.pop[:, :1])
    with pytest.raises(NdstackError, match="names of"):
        dataclasses.replace(weights, names=dataclasses.replace(weights.names, inputs=("a",)))
    monkeypatch.setattr("ndstack.analysis.transition_weights.MOST_BYTES", 1000)
    with pytest.raises(NdstackError, match="give a shorter string"):
        random_weights(0)


def test_where_no_run_survives_there_is_nothing_to_draw():
    weights = random_weights(0)
    weights.push[2] = weights.replace[2] = weights.pop[2] = -math.inf
    runs = StackRuns(weights)
    assert list(summary_lines(runs)) == ["no run survives"]
    assert runs.count() == 0
    for ask in (lambda: runs.sample(1, np.random.default_rng(0)), runs.entropy):
        with pytest.raises(NdstackError, match="no run survives to time 4"):
            ask()


def test_runs_too_many_for_a_float_are_not_counted(monkeypatch):
    monkeypatch.setattr(StackRuns, "log_count", 361 * math.log(10))
    with pytest.raises(NdstackError, match=r"about 10\^361 runs"):
        StackRuns(random_weights(0)).count()


def test_equally_good_paths_of_a_stack_graph_are_all_kept():
    weights = random_weights(1, n=3, symbols=3, scale=0.0, zeros=0.0)
    weights.replace[:] = weights.pop[:] = -math.inf  # all runs are pushes and as good as each other
    runs = StackRuns(weights)
    everything = stack_wfa_marginals(runs)
    assert len(everything.edges) == 1 + 6 + 36 + 36
    for most in (0, 5):
        assert stack_wfa_marginals(runs, most=most).wfa.edges == everything.wfa.edges
