import json
import math

import pytest

from ndstack.errors import TrainingError
from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import models
from ndstack.plotting import render, save_figure
from ndstack.training import Run, evaluate, make_data, make_test_data
from ndstack.training.pictures import draw_by_length, draw_curves
from tests.training.small import small_config, small_run


@pytest.fixture(scope="module")
def data():
    plan = Plan(train=0, validation=0, lengths=(3, 9), test_lengths=(2, 12), test_per_length=7)
    return make_dataset(get("marked-reversal"), 0, plan)


def test_by_length_every_string_counts_once(data):
    result = evaluate(models.build("lstm", data.language), data)
    assert [row.length for row in result.by_length] == [3, 5, 7, 9, 11]
    assert [row.strings for row in result.by_length] == [7] * 5
    assert result.overall.strings == len(data.test) == 35
    assert result.overall.symbols == sum(len(word) + 1 for word in data.test)


@pytest.mark.parametrize("eos", [True, False])
def test_rows_equal_a_direct_computation(data, eos):
    model = models.build("rns-2-2", data.language)
    result = evaluate(model, data, eos=eos)
    words = [word for word in data.test if len(word) == 7]
    row = next(row for row in result.by_length if row.length == 7)
    nats = [-model.log_probability([word], eos=eos).item() for word in words]
    assert row.cross_entropy == pytest.approx(sum(nats) / (7 * (7 + eos)), rel=1e-5)
    assert row.lower_bound == pytest.approx(3 * math.log(2) / (7 + eos))  # the length is known
    assert row.difference == row.cross_entropy - row.lower_bound
    all_nats = [-model.log_probability([word], eos=eos).item() for word in data.test]
    symbols = sum(len(word) + eos for word in data.test)
    assert result.overall.cross_entropy == pytest.approx(sum(all_nats) / symbols, rel=1e-5)
    bound = sum(math.log(5) + len(word) // 2 * math.log(2) for word in data.test) / symbols
    assert result.overall.lower_bound == pytest.approx(bound)


def test_the_test_set_does_not_depend_on_the_seed():
    sets = [make_test_data(small_config(seed=seed)).test for seed in (1, 2)]
    assert sets[0] == sets[1]
    assert make_data(small_config(seed=1)).train != make_data(small_config(seed=2)).train


def test_nothing_to_evaluate_on(data):
    with pytest.raises(TrainingError, match="no validation strings"):
        evaluate(models.build("lstm", data.language), data, "validation")


def test_pictures(tmp_path, data):
    small_run(tmp_path / "run", "lstm")
    history = Run.open(tmp_path / "run").metrics()
    curve = draw_curves({"a model": history}, "the title")
    result = evaluate(models.build("lstm", data.language), data)
    lengths = draw_by_length({"a model": result})
    for figure, label in ((curve, "epoch"), (lengths, "length")):
        text = render(figure).decode()
        assert text == render(figure).decode()
        assert all(word in text for word in ("a model", label, "cross-entropy difference (nats)"))
        save_figure(figure, tmp_path / "new" / "x.png")
        assert (tmp_path / "new" / "x.png").read_bytes().startswith(b"\x89PNG")


def test_evaluations_are_plain_data(data):
    result = evaluate(models.build("lstm", data.language), data)
    again = json.loads(json.dumps(result.as_json()))
    assert again["overall"]["difference"] == result.overall.difference


def test_curves_of_text_show_perplexity():
    history = [
        {"epoch": epoch, "validation_cross_entropy": nats, "validation_perplexity": math.exp(nats)}
        for epoch, nats in enumerate([5.0, 4.8, 4.7], start=1)
    ]
    (axes,) = draw_curves({"a model": history}).axes
    assert (axes.get_ylabel(), axes.get_yscale()) == ("validation perplexity", "log")
    assert axes.lines[0].get_ydata() == pytest.approx([math.exp(nats) for nats in (5.0, 4.8, 4.7)])
    (axes,) = draw_curves({"text": history, "strings": [{"epoch": 1, "validation_cross_entropy": 1.0}]}).axes
    assert axes.get_ylabel() == "validation cross-entropy (nats)"
