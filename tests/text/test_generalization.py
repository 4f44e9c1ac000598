import json
import random

import pytest

from ndstack.errors import NdstackError
from ndstack.text import evaluate_suites, read_suite
from ndstack.text.generalization import AVERAGINGS, circuit_of
from ndstack.text.suites import SuiteError, find_suites

FORMULA = "[(2;%good%) < (2;%bad%)] & [(*;%good%) < (*;%bad%)]"


def content(name="number_test", formulas=(FORMULA,), items=2, **meta):
    def condition(name, word):
        texts = ["the", word, ""]
        return {
            "condition_name": name,
            "regions": [{"region_number": i, "content": text} for i, text in enumerate(texts, 1)],
        }

    return {
        "meta": {"name": name, "metric": "sum", **meta},
        "region_meta": {"1": "x", "2": "y", "3": "z"},
        "predictions": [{"type": "formula", "formula": formula} for formula in formulas],
        "items": [
            {"item_number": n, "conditions": [condition("good", f"g{n}"), condition("bad", f"b{n} b{n}")]}
            for n in range(1, items + 1)
        ],
    }


def write(folder, data, name="suite.json"):
    path = folder / name
    path.write_text(json.dumps(data))
    return path


def scorer(table):
    return lambda sentences: [[table[word] for word in sentence] for sentence in sentences]


def test_truth_by_hand(tmp_path):
    """Item 1: 2 < 1.5 + 1.5 and 3 < 4. Item 2: 5 > 2 + 2, and 6 > 5."""
    suite = read_suite(write(tmp_path, content()))
    table = {"the": 1.0, "g1": 2.0, "b1": 1.5, "g2": 5.0, "b2": 2.0}
    result = evaluate_suites([suite], scorer(table)).suites[0]
    assert result.truths == ((True, True), (False, False))
    assert result.holds == (True, False)
    assert result.circuit == "Agreement"
    assert [result.accuracy(way) for way in AVERAGINGS] == [0.5, 0.5]


def test_the_two_ways_of_averaging_differ(tmp_path):
    half = "[(2;%good%) < (2;%bad%)] & [(2;%good%) > (2;%bad%)]"
    suites = [
        read_suite(write(tmp_path, content("number_x", (half, "0 > 1"), 3))),
        read_suite(write(tmp_path, content("fgd-embed3"))),
        read_suite(write(tmp_path, content("nn-nv-rpl", ("0 > 1",)))),
        read_suite(write(tmp_path, content("mine", circuit="Mine"))),
    ]
    table = {"the": 1.0} | {f"g{n}": 0.0 for n in range(1, 4)} | {f"b{n}": 1.0 for n in range(1, 4)}
    result = evaluate_suites(suites, scorer(table))
    assert result.score("dissertation") == pytest.approx((0.5 + 1 + 1) / 3)
    assert result.score("hu") == pytest.approx((0 + 1) / 2)
    assert result.by_circuit("dissertation") == {"Agreement": 0.5, "Long-Distance Dependencies": 1, "Mine": 1}
    assert result.by_circuit("hu") == {"Agreement": 0, "Mine": 1}
    assert evaluate_suites(suites[2:3], scorer(table)).score() is None


def test_who_knows_the_answers_gets_1_and_a_guesser_chance(tmp_path):
    suites = [read_suite(write(tmp_path, content(f"npi_{n}", items=200))) for n in range(5)]
    knows = evaluate_suites(suites, lambda s: [[0.0 if w[0] == "g" else 9.0 for w in one] for one in s])
    assert [knows.score(way) for way in AVERAGINGS] == [1.0, 1.0]
    formula = "[(1;%good%) < (1;%bad%)] & [(2;%good%) < (1;%bad%)] & [(1;%good%) < (2;%good%)]"
    suites = [read_suite(write(tmp_path, content(f"npi_{n}", (formula,), items=200))) for n in range(5)]
    rng = random.Random(0)
    guesses = evaluate_suites(suites, lambda s: [[rng.random() for _ in one] for one in s])
    assert guesses.score("dissertation") == pytest.approx(0.5, abs=0.03)
    assert guesses.score("hu") == pytest.approx(1 / 6, abs=0.03)


@pytest.mark.parametrize("metric, good", [("mean", True), ("sum", True), ("max", False), ("median", True)])
def test_metrics_of_a_region(tmp_path, metric, good):
    data = content(formulas=["(2;%good%) < (2;%bad%)"], items=1, metric=metric)
    data["items"][0]["conditions"][0]["regions"][1]["content"] = "x y z"
    suite = read_suite(write(tmp_path, data))
    result = evaluate_suites([suite], scorer({"the": 0, "x": 0, "y": 0, "z": 5, "b1": 3}))
    assert result.suites[0].holds == (good,)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["items"][1]["conditions"].pop(), r"item 2: has no region . in the condition 'bad'"),
        (lambda d: d["items"][1]["conditions"][0]["regions"][0].pop("content"),
         r"suite.json, item 2, conditions.1.regions.1.content: Field required"),
        (lambda d: d["items"][0].update(item_number="one"), "suite.json, item at place 1, item_number"),
        (lambda d: d["predictions"][0].update(formula="(2;%good%) <"), r"prediction 1: .*got the end"),
        (lambda d: d["predictions"][0].pop("formula"), "suite.json, prediction 1, formula: Field required"),
        (lambda d: d.pop("items"), "suite.json, items: Field required"),
        (lambda d: d["meta"].update(metric="product"), "suite.json, meta.metric"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_item(tmp_path, change, message):
    data = content()
    change(data)
    with pytest.raises(SuiteError, match=message):
        read_suite(write(tmp_path, data))


def test_files_that_are_no_suites(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SuiteError, match=r"x.json is not JSON"):
        read_suite(tmp_path / "x.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SuiteError, match="no suites in"):
        find_suites([tmp_path / "empty"])


@pytest.mark.parametrize("answer", [[], [[1.0]], [[1.0, float("nan")], [1.0, 1.0, 1.0]]])
def test_scorers_are_checked(tmp_path, answer):
    suite = read_suite(write(tmp_path, content(items=1)))
    with pytest.raises(NdstackError, match="the scorer gave"):
        evaluate_suites([suite], lambda sentences: answer)


def test_every_suite_of_the_benchmark_has_its_circuit(tmp_path):
    names = {
        "number_orc": "Agreement", "npi_src_any": "Licensing", "reflexive_prep_fem": "Licensing",
        "mvrr": "Garden-Path Effects", "npz_obj_mod": "Garden-Path Effects", "subordination_orc-orc":
        "Gross Syntactic Expectation", "center_embed_mod": "Center Embedding", "cleft_modifier":
        "Long-Distance Dependencies", "fgd-embed4": "Long-Distance Dependencies", "nn-nv-rpl": None,
        "numbering": "Other",
    }  # fmt: skip
    for name, circuit in names.items():
        assert circuit_of(read_suite(write(tmp_path, content(name)))) == circuit
