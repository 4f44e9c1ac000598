"""Traces against what the models themselves compute, and the runs of compiled grammars."""

import itertools

import numpy as np
import pytest
import torch

from ndstack import languages
from ndstack.analysis import StackRuns, trace
from ndstack.automata import accepting_runs
from ndstack.nn import LanguageModel, StackAttention, StackRNN, models, recognizer
from ndstack.nn.proofs.examples import SENTENCE, english, palindromes, three_counts
from ndstack.stacks import Nondeterministic, Several, Stratification, Superposition

WORD = "([])()"


def with_large_weights(name, **options):
    """A model whose stack does not act the same at every step."""
    model = models.build(name, "dyck", **options).double().eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.add_(0.5 * noise)
    return model


def own_readings(model, word):
    """The readings in the states of the model, prefix by prefix."""
    symbols, _ = model.encode([word])
    found = []
    for t in range(0 if model.bos else 1, len(word) + 1):
        state = model(symbols[:, :t])[1]
        if isinstance(model.backbone, StackRNN):
            found.append(state.stack.reading[0])
        else:
            layers = zip(model.backbone.layers, state.layers, strict=True)
            found.append(
                next(s.reading[0] for layer, s in layers if isinstance(layer.attention, StackAttention))
            )
    return torch.stack(found).detach().numpy()


@pytest.mark.parametrize("name", [n for n in models.NAMES if n not in ("lstm", "tf")])
def test_readings_are_the_models_own(name):
    model = with_large_weights(name)
    found = trace(model, WORD)
    readings = np.concatenate([stack.readings for stack in found.stacks], axis=1)
    np.testing.assert_allclose(readings, own_readings(model, WORD), atol=1e-9)
    for stack in found.stacks:
        assert stack.readings.shape == (stack.steps, len(stack.reading_names))
        assert stack.actions.shape == (stack.steps, len(stack.action_names))
        np.testing.assert_allclose(stack.attention.sum(axis=1), 1, atol=1e-12)
        assert not np.triu(stack.attention[:, 1:], 1).any()  # nothing is attended to before it is pushed
        if stack.kind != "stratification":
            np.testing.assert_allclose(stack.actions.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("name", ["vrns-2-3-3", "tf+vrns-3-3-5", "sup-10", "strat-20"])
def test_vector_readings_are_the_attention_over_vectors(name):
    model = with_large_weights(name)
    stack = trace(model, WORD).stack()
    if stack.kind != "nondeterministic":
        np.testing.assert_allclose(
            stack.attention[:, 1:] @ stack.vectors, own_readings(model, WORD), atol=1e-9
        )
        return
    inner = next(m for m in model.modules() if isinstance(m, Nondeterministic))
    vectors = np.vstack([torch.sigmoid(inner.bottom).detach().numpy(), stack.vectors])
    by_type = np.stack([stack.runs.at(t).ends for t in range(1, stack.steps + 1)])
    whole = (by_type[..., None] * (stack.attention_by_type @ vectors)).reshape(stack.steps, -1)
    np.testing.assert_allclose(whole, own_readings(model, WORD), atol=1e-9)


@pytest.mark.parametrize("window, fix", [(None, True), (None, False), (2, True), (3, False)])
def test_runs_to_each_time_give_the_reading_and_the_attention(window, fix):
    model = with_large_weights("rns-2-3", window=window, bottom_fix=fix)
    stack = trace(model, WORD).stack()
    for t in range(1, stack.steps + 1):
        np.testing.assert_allclose(stack.runs.at(t).ends.reshape(-1), stack.readings[t - 1], atol=1e-9)
    share = stack.runs.chart.sums[2]
    for t, (q, x) in itertools.product(range(1, stack.steps + 1), np.ndindex(2, 3)):
        by_place = share[: stack.steps + 1, t, :, 3 * q + x].sum(axis=1)
        np.testing.assert_allclose(by_place, stack.attention_by_type[t - 1, q, x], atol=1e-9)


def test_attention_of_a_superposition_stack_is_that_of_one_state_and_symbol():
    """Section 9.2, where the bottom is never popped."""
    model = with_large_weights("sup-10")
    with torch.no_grad():
        model.backbone.actions.weight.zero_()
        model.backbone.actions.bias.copy_(torch.tensor([0.3, 0.5, -torch.inf], dtype=torch.float64))
    stack = trace(model, WORD).stack()
    push, noop, _ = stack.actions[0]
    for t in range(1, stack.steps + 1):
        expected = [noop**t] + [push * noop ** (t - j) for j in range(1, t + 1)]
        np.testing.assert_allclose(stack.attention[t - 1, : t + 1], expected, atol=1e-12)


def test_unnormalised_readings_and_several_stacks():
    model = with_large_weights("rns-2-3", normalize_reading=False)
    stack = trace(model, WORD).stack()
    np.testing.assert_allclose(stack.readings, own_readings(model, WORD), rtol=1e-6)
    assert stack.runs.weights.states == 2
    parts = Several(Superposition((2, 3)), Nondeterministic(2, 2), Superposition(1))
    model = LanguageModel(StackRNN(2, 5, parts), "ab").double()
    found = trace(model, "abba")
    assert [s.where for s in found.stacks] == [
        "RNN, stack 1, stack 1", "RNN, stack 1, stack 2", "RNN, stack 2", "RNN, stack 3"
    ]  # fmt: skip
    readings = np.concatenate([s.readings for s in found.stacks], axis=1)
    np.testing.assert_allclose(readings, own_readings(model, "abba"), atol=1e-9)
    model = LanguageModel(StackRNN(2, 5, Several(Stratification(2))), "ab").double()
    np.testing.assert_allclose(trace(model, "ab").stack().readings, own_readings(model, "ab"), atol=1e-9)


def test_predictions_beside_the_truth():
    model, language = models.build("tf+sup-32", "dyck").train(), languages.get("dyck")
    found = trace(model, WORD, language, (2, 10))
    assert model.training  # as before, but read without dropout
    with torch.no_grad():
        own = torch.softmax(model.eval().logits([WORD])[0].double(), -1)
    np.testing.assert_allclose(found.predictions, own.numpy(), atol=1e-12)
    np.testing.assert_allclose(found.truth, language.next_symbols(WORD, (2, 10)))
    assert found.outputs == (*language.alphabet, "EOS")
    assert found.stack().inputs == ("BOS", *WORD)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_truth_is_in_the_order_of_the_models_alphabet():
    language = languages.get("marked-reversal")
    model = models.build("lstm", ["#", "1", "0", "x"])
    truth = trace(model, "01#10", language, (5, 5)).truth
    np.testing.assert_allclose(truth[3], [0, 1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(truth[0], [0, 0.5, 0.5, 0, 0], atol=1e-12)


@pytest.mark.compiled
def test_the_english_sentence_has_three_accepting_runs_and_they_are_the_best():
    network = recognizer(english())
    found = trace(network, SENTENCE)
    assert found.accepted
    runs = found.stack().runs.accepting()
    assert runs.count() == 3
    best = runs.k_best(4)
    layout = network.layout
    wanted = {
        tuple((c.state, c.stack) for c in run.configurations)
        for run in accepting_runs(layout.union.pda, SENTENCE)
    }
    states = layout.states
    assert len(wanted) == len(best) == 3
    assert {
        tuple((states[c.state], stack) for c, stack in zip(run.configurations, run.stacks(), strict=True))
        for run in best
    } == wanted
    assert [run.probability for run in best] == pytest.approx([1 / 3] * 3)
    assert runs.entropy() == pytest.approx(np.log(3))
    assert all(tuple(run.tree().leaves()) == SENTENCE for run in best)
    assert len({str(run.tree(types=True)) for run in best}) == 3


def test_recognisers_of_one_and_of_several_grammars():
    found = trace(recognizer(palindromes()), "abba")
    run = found.stack().runs.accepting().best()
    assert [move.action for move in run.moves] == ["push", "push", "pop", "pop"]
    assert run.arcs() == [(2, 3), (1, 4)]
    assert str(run.tree()) == "(⊥ (a a (b b b) a))"
    network = recognizer(three_counts())
    assert trace(network, "aabbcc").stack().runs.accepting().count() >= 2  # one for each grammar
    found = trace(network, "aabbc")
    assert found.accepted is False


def test_empty_strings_and_models_without_stacks():
    found = trace(models.build("rns-2-3", "dyck"), "")
    assert found.stack().runs.best().moves == ()
    assert found.stack().runs.entropy() == 0
    assert found.stack().runs.best().stacks() == [("⊥",)]
    assert trace(models.build("lstm", "dyck"), WORD).stacks == ()
    with pytest.raises(ValueError, match="there is no stack number 1; the model has no stacks"):
        trace(models.build("lstm", "dyck"), WORD).stack()
    with pytest.raises(ValueError, match="only a nondeterministic one has runs"):
        _ = trace(models.build("sup-10", "dyck"), WORD).stack().runs


@pytest.mark.compiled
def test_eighty_symbols_of_three_states_and_symbols():
    word = languages.get("dyck").sample(80, np.random.default_rng(0))
    stack = trace(with_large_weights("rns-3-3"), word).stack()
    runs = stack.runs
    assert isinstance(runs, StackRuns)
    best = runs.k_best(5)
    samples = runs.sample(5, np.random.default_rng(0))
    assert all(best[0].log_weight >= run.log_weight - 1e-9 for run in [*best, *samples])
    np.testing.assert_allclose(runs.posterior.actions().sum(axis=1), 1, atol=1e-9)
    assert runs.entropy() > 0
