"""What can be opened by name, and the two commands."""

import json
import math

import numpy as np
import pytest

from ndstack.analysis.source import EXAMPLES, open_source
from ndstack.errors import NdstackError
from ndstack.nn import models
from ndstack.training import RunConfig, train
from tests.commands import ndstack

SENTENCE = "Mary saw a man in the park with a telescope"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    config = RunConfig.of(
        {
            "language": "marked-reversal",
            "model": "rns-2-3",
            "data": {"lengths": (3, 7), "test_lengths": (3, 7), "train": 20, "validation": 5},
            "training": {"max_epochs": 1, "snapshots": 1, "threads": 1},
        },
        "the test",
    )
    train(path, config, show="nothing")
    return path


def test_runs_models_grammars_and_automata(folder, tmp_path, monkeypatch):
    source = open_source(folder)
    assert (source.label, source.lengths) == ("RNS 2-3 on marked-reversal", (3, 7))
    found = source.trace(source.split("01#10"))
    np.testing.assert_allclose(found.truth[3], [0, 1, 0, 0], atol=1e-12)
    models.build("sup-10", "dyck").save(tmp_path / "saved")
    assert open_source(tmp_path / "saved").trace("()").stack().kind == "superposition"
    (tmp_path / "my.cfg").write_text("S -> 'the cat' S | 'sat'")
    source = open_source(tmp_path / "my.cfg")
    assert source.split("the cat sat") == ("the cat", "sat")
    assert source.join(("the cat", "sat")) == "the cat sat"
    assert source.trace(("the cat", "sat")).accepted
    for name in EXAMPLES:
        assert open_source(name).alphabet
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dyck").mkdir()
    assert open_source("dyck").label == "compiled grammar"


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(NdstackError, match=r"there is no run, model or grammar file 'nothing'.*english"):
        open_source("nothing")
    with pytest.raises(NdstackError, match="neither a run"):
        open_source(tmp_path)
    with pytest.raises(NdstackError, match="'x' is not in the alphabet of dyck"):
        open_source("dyck").split("(x")


def test_parse_shows_the_three_runs_of_the_sentence():
    done = ndstack("parse", "english", SENTENCE, "--best", "5")
    assert done.returncode == 0
    assert "english: compiled grammar, accepted\n3 runs, entropy 1.0986 nats" in done.stdout
    assert done.stdout.count("probability 0.3333") == 3
    assert "  7     a telescope  pop            1.0000     loop   ⊥\n" in done.stdout
    trees = ndstack("parse", "english", SENTENCE, "--tree").stdout
    assert "(⊥ (S/NP→VP/V→" in trees


def test_parse_as_json_says_the_same():
    found = json.loads(ndstack("parse", "english", SENTENCE, "--best", "9", "--json").stdout)
    assert found["accepted"] is True
    assert len(found["runs"]) == 3
    assert found["entropy"] == pytest.approx(math.log(3))
    assert math.exp(found["log_count"]) == pytest.approx(3)
    assert [step["read"] for step in found["runs"][0]["steps"]][:2] == ["Mary", "saw"]
    assert found["runs"][0]["steps"][-1]["stack"] == ["⊥"]
    rejected = json.loads(ndstack("parse", "english", "Mary saw", "--json").stdout)
    assert (rejected["accepted"], len(rejected["runs"])) == (False, 1)


def test_parse_samples_by_seed(folder):
    texts = [ndstack("parse", folder, "01#10", "--samples", "3", "--seed", seed).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count("sample ") == 3
    assert "about 10^" in ndstack("parse", folder, "01#10" * 2, "--time", "9").stdout
    assert "all 0 steps" not in ndstack("parse", folder, "").stdout


WHATS = ["attention", "readings", "actions", "stacks", "wfa", "tree", "predictions", "pca", "evolution"]


@pytest.mark.parametrize("what", WHATS)
def test_draw_writes_every_kind_of_picture(what, folder, tmp_path):
    done = ndstack("draw", folder, "01#10", "--what", what, "--out", "x.svg", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{what} drawn in x.svg\n")
    assert (tmp_path / "x.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_draw_pca_of_sampled_strings(folder, tmp_path):
    done = ndstack(
        "draw", folder, "--what", "pca", "--samples", "4", "--after", "#", "--out", "p.png", cwd=tmp_path
    )
    assert done.returncode == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["parse", "dyck", "(x"], "'x' is not in the alphabet of dyck: ( ) [ ]"),
        (["parse", "dyck", "()", "--time", "7"], "time 7 given, expected 0 to 2, the number of steps"),
        (["parse", "dyck", "()", "--stack", "2"], "there is no stack number 2; the model has 1 stack"),
        (
            ["draw", "dyck", "--what", "wfa"],
            "0 strings given, expected one: ndstack draw dyck STRING --what wfa",
        ),
        (["draw", "dyck", "()", "--out", "x.gif"], "x.gif cannot be drawn"),
        (
            ["draw", "dyck", "()", "--what", "tree", "--best", "9"],
            "--best 9 given, but there are only 1 runs",
        ),
        (["draw", "dyck", "()", "--what", "evolution"], "dyck is not a run; evolution needs a run"),
        (["draw", "dyck", "--what", "pca"], "nothing to read; expected strings or --samples"),
        (
            ["draw", "three-counts", "--what", "pca", "--samples", "2"],
            "the language of three-counts is unknown",
        ),
        (["draw", ".", "()"], ". is neither a run (config.json) nor a saved model (model.json)"),
        (
            ["draw", "none", "()"],
            "there is no run, model or grammar file 'none'; expected one, a network that",
        ),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path):
    done = ndstack(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ndstack: error: {message}")
    assert done.stderr.count("\n") == 1
