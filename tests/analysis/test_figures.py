"""Every picture is drawn, says what it shows, and is the same each time."""

import re

import numpy as np
import pytest

from ndstack import languages
from ndstack.analysis import figures, most_probable_stacks, trace
from ndstack.analysis.figures.pca import components
from ndstack.errors import NdstackError
from ndstack.nn import models, recognizer
from ndstack.nn.proofs.examples import SENTENCE, english, palindromes

WORD = "([])()"


def words(picture):
    """The text in a picture."""
    return [re.sub(r"<[^>]*>", "", t) for t in re.findall(r"<text[^>]*>(.*?)</text>", picture.svg(), re.S)]


@pytest.fixture(scope="module")
def sentence():
    return trace(recognizer(english()), SENTENCE).stack()


@pytest.fixture(scope="module")
def model():
    return models.build("rns-2-3", "dyck")


def test_a_picture_can_be_shown_and_saved(model, tmp_path):
    picture = figures.draw_readings(trace(model, WORD).stack())
    assert picture._repr_svg_() == picture.svg() == picture.svg()
    assert picture.png().startswith(b"\x89PNG")
    for name in ("x.svg", "x.png", "x.pdf"):
        picture.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(NdstackError, match="cannot be drawn"):
        picture.save(tmp_path / "x.txt")


@pytest.mark.parametrize("name", ["rns-2-3", "vrns-2-3-3", "sup-3-3-3", "strat-20", "tf+vrns-3-3-5"])
def test_heat_maps_of_every_kind_of_stack(name):
    stack = trace(models.build(name, "dyck"), WORD).stack()
    for draw in (figures.draw_readings, figures.draw_actions, figures.draw_attention):
        shown = words(draw(stack, title="My title"))
        assert any(text.startswith("My title") for text in shown)
        assert all(shown.count(symbol) >= WORD.count(symbol) for symbol in "()[]")
    assert set(stack.reading_names) <= set(words(figures.draw_readings(stack)))
    assert set(stack.action_names) <= set(words(figures.draw_actions(stack)))
    start = "⊥" if stack.kind == "nondeterministic" else "∅"
    assert start in words(figures.draw_attention(stack))


def test_predictions_beside_the_truth(model):
    picture = figures.draw_predictions(trace(model, WORD, languages.get("dyck"), (2, 10)))
    assert {"Next symbol: model", "Next symbol: language", "EOS", "(", "]"} <= set(words(picture))
    assert "Next symbol: language" not in words(figures.draw_predictions(trace(model, WORD)))
    with pytest.raises(NdstackError, match="predicts no symbols"):
        figures.draw_predictions(trace(recognizer(english()), SENTENCE))


def test_runs_as_stacks_and_trees(sentence):
    run = sentence.runs.accepting().best()
    shown = words(figures.draw_stacks(run))
    assert {*SENTENCE, "loop", "⊥"} <= set(shown)
    assert shown.count("⊥") == 8
    shown = words(figures.draw_tree(run))
    assert [text for text in shown if text in SENTENCE] == list(SENTENCE)
    assert "⊥" in shown
    assert "loop, ⊥" in words(figures.draw_tree(run, types=True))


def test_stack_wfa_at_any_time(sentence):
    shown = words(figures.draw_wfa(sentence.runs.at(0)))
    assert "0, q0, ⊥" in shown
    assert "⊥ / 1" in shown
    shown = words(figures.draw_wfa(sentence.runs))
    assert {"7, loop, ⊥", "7, trap, ⊥", "Stack WFA at t = 7"} <= set(shown)
    assert any(" / " in text for text in shown)
    assert not any(" / " in text for text in words(figures.draw_wfa(sentence.runs, weights=False)))


def test_a_large_stack_wfa_shows_what_is_probable(model):
    runs = trace(model, "([])" * 8).stack().runs
    shown = words(figures.draw_wfa(runs))
    assert "Stack WFA at t = 32, the most probable stacks" in shown
    edges = [text for text in shown if " / " in text]
    assert 0 < len(edges) <= 28


def test_no_stack_wfa_where_no_run_survives(sentence):
    with pytest.raises(NdstackError, match="no run survives"):
        figures.draw_wfa(trace(recognizer(english()), ("saw", "saw")).stack().runs.at(end=[(1, 1)]))


def test_components_are_those_of_the_covariance():
    readings = np.random.default_rng(0).normal(size=(50, 4)) * [3, 2, 1, 0.1]
    points, variance = components(readings)
    values = np.sort(np.linalg.eigvalsh(np.cov(readings.T)))[::-1]
    np.testing.assert_allclose(np.cov(points.T), np.diag(values[:2]), atol=1e-9)
    np.testing.assert_allclose(variance, values[:2] / values.sum())
    assert components(np.ones((3, 1)))[0].shape == (3, 2)


def test_pca_of_readings_before_each_symbol():
    model = models.build("rns-2-3", "marked-reversal")
    readings, labels = figures.readings_by_next_symbol(model, ["01#10", "0#0"], after="#")
    assert labels == ["1", "0", "0"]
    np.testing.assert_allclose(readings[0], trace(model, "01#10").stack().readings[2])
    shown = words(figures.draw_pca(readings, labels))
    assert {"next symbol", "0", "1"} <= set(shown)
    many = [str(number) for number in range(30)]
    shown = words(figures.draw_pca(np.random.default_rng(0).normal(size=(30, 3)), many))
    assert set(many) <= set(shown)
    assert "next symbol" not in shown
    tf = models.build("tf+sup-32", "marked-reversal")
    readings, labels = figures.readings_by_next_symbol(tf, ["0#0"])
    assert labels == ["0", "#", "0"]
    np.testing.assert_allclose(readings[0], trace(tf, "0#0").stack().readings[0])  # after BOS
    with pytest.raises(NdstackError, match="no readings"):
        figures.readings_by_next_symbol(model, ["01"], after="#")


def test_evolution_of_actions_over_training(tmp_path):
    snapshots = {epoch: models.build("rns-2-3", "marked-reversal", seed=epoch) for epoch in (2, 0, 1)}
    evolution = figures.Evolution.of_models(snapshots, "0#0")
    assert evolution.epochs == (0, 1, 2)
    np.testing.assert_allclose(evolution.actions[2], trace(snapshots[2], "0#0").stack().actions)
    shown = words(figures.draw_evolution(evolution, title="Actions"))
    assert {"Actions: push", "Actions: replace", "Actions: pop", "epoch", "#"} <= set(shown)
    shown = words(figures.draw_evolution(evolution, ["push", "replace", "pop"], title="Actions"))
    assert "Actions: correct action" in shown
    with pytest.raises(NdstackError, match="2 correct actions given, expected 3"):
        figures.draw_evolution(evolution, ["push", "pop"])
    evolution.save(tmp_path / "actions.json")
    again = figures.Evolution.load(tmp_path / "actions.json")
    np.testing.assert_allclose(again.actions, evolution.actions, atol=1e-6)
    assert (again.inputs, again.epochs) == (evolution.inputs, evolution.epochs)
    (tmp_path / "bad.json").write_text('{"inputs": ["a"], "epochs": [1], "action_names": [], "actions": [1]}')
    with pytest.raises(NdstackError, match="expected an evolution of actions"):
        figures.Evolution.load(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(NdstackError, match=r"bad\.json is damaged"):
        figures.Evolution.load(tmp_path / "bad.json")
    with pytest.raises(NdstackError, match=r"cannot read .*none\.json"):
        figures.Evolution.load(tmp_path / "none.json")
    with pytest.raises(NdstackError, match="no snapshots"):
        figures.Evolution.of_traces({})


def test_nothing_read_is_nothing_to_draw(model):
    with pytest.raises(NdstackError, match="nothing to draw"):
        figures.draw_readings(trace(model, "").stack())
    with pytest.raises(NdstackError, match="1 readings and 2 labels given"):
        figures.draw_pca(np.zeros((1, 3)), ["a", "b"])
    with pytest.raises(NdstackError, match="at most 400"):
        figures.draw_attention(trace(model, "()" * 201).stack())


def test_dollars_are_not_formulas():
    model = models.build("rns-2-3", "hardest-cfl")
    shown = words(figures.draw_readings(trace(model, "$,$()$,;").stack()))
    assert shown.count("$") == 3


def test_an_animation_has_every_step_and_frames_the_stack_that_accepts(tmp_path):
    runs = trace(recognizer(palindromes()), "abba").stack().runs
    moving = figures.animate_stacks(runs)
    text = moving._repr_svg_()
    steps = re.findall(r'<g class="t(\d+)">(.*?)</g>', text, re.S)
    assert [int(step) for step, _ in steps] == [0, 1, 2, 3, 4]
    assert all(f"@keyframes k{step}{{" in text for step, _ in steps)
    assert "prefers-reduced-motion" in text
    assert ["accepted" in content for _, content in steps] == [False] * 4 + [True]
    assert words(moving).count("loop") == sum(
        runs.weights.names.states[one.state] == "loop"
        for time in range(5)
        for one in most_probable_stacks(runs.at(time), 6)
    )
    moving.save(tmp_path / "moving.svg")
    assert (tmp_path / "moving.svg").read_text(encoding="utf-8") == text
    with pytest.raises(NdstackError, match=r"ends in \.svg, which can move"):
        moving.save(tmp_path / "moving.png")
    with pytest.raises(NdstackError, match="nothing has been read"):
        figures.animate_stacks(runs.at(0))
