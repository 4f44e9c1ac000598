"""The commands around a run, called in this process."""

import json
import sys

import pytest

from ndstack.cli import main
from ndstack.settings.reading import parse_setting
from ndstack.training import Run
from tests.training.small import small_config, small_run

TINY = [
    "--lengths",
    "3:7",
    "--train",
    "20",
    "--max-epochs",
    "2",
    "--threads",
    "1",
    "--set",
    "options.hidden=5",
]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["ndstack", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        assert end.value.code == code, output.err
        return output

    return call


def test_train_prints_one_line_an_epoch_and_the_result(run, tmp_path):
    lines = run("train", "dyck", "--model", "sup-2", "--out", "x", *TINY, "--lengths", "4:8").out.splitlines()
    *epochs, result = [json.loads(line) for line in lines]
    assert epochs == Run.open(tmp_path / "x").metrics()
    assert result["model"] == "sup-2"
    assert result["difference"] == min(line["validation_difference"] for line in epochs)
    config = Run.open(tmp_path / "x").config
    assert config.options.hidden == 5
    assert config.data.test_lengths == (4, 10)


def test_a_toml_file_flags_and_set(run, tmp_path):
    (tmp_path / "my.toml").write_text(
        'language = "dyck"\nmodel = "lstm"\nseed = 3\n[data]\ntrain = 30\nvalidation = 10\nlengths = [4, 8]\n'
        "[training]\nmax_epochs = 1\nclip = 2.0\nlearning_rate = 0.1\n"
    )
    run("train", "--config", "my.toml", "--out", "x", "--seed", "4", "--set", "training.clip=1", "--quiet")
    config = Run.open(tmp_path / "x").config
    assert (config.language, config.seed, config.training.seed) == ("dyck", 4, 4)
    assert (config.training.clip, config.training.learning_rate) == (1.0, 0.1)


def test_a_data_folder_and_a_grammar(run, tmp_path):
    (tmp_path / "anbn.cfg").write_text("S -> 'a' S 'b' [0.5] | 'a' 'b' [0.5]\n")
    sizes = ["--train", "20", "--validation", "10", "--test-per-length", "2", "--lengths", "2:6"]
    run("dataset", "--grammar", "anbn.cfg", "--out", "data", *sizes, "--test-lengths", "2:8")
    run("train", "--data", "data", "--model", "lstm", "--out", "x", "--max-epochs", "1", "--quiet")
    row = json.loads(run("evaluate", "x", "--json").out)
    assert [line["length"] for line in row["by_length"]] == [2, 4, 6, 8]
    assert "whose data are in a folder" in run("evaluate", "x", "--lengths", "2:4", code=2).err
    (tmp_path / "data" / "train.txt").write_text("ab\n")
    assert "has changed since the run started" in run("train", "--resume", "x", code=2).err
    run("train", "--grammar", "anbn.cfg", "--model", "lstm", "--out", "y", *TINY, "--quiet")
    assert json.loads(run("generate", "y", "--greedy", "--json").out)["string"].strip("ab") == ""


def test_evaluate_generate_show_compare(run, tmp_path):
    for name in ("lstm", "rns-1-2"):
        small_run(tmp_path / name, name)
    table = run("evaluate", "lstm").out
    assert table.split()[5:7] == ["lower", "bound"] or "lower bound" in table
    assert table.splitlines()[-2].split()[0] == "all"
    assert "<svg" in (tmp_path / "lstm" / "test.svg").read_text()
    saved = json.loads((tmp_path / "lstm" / "test.json").read_text())
    assert saved == json.loads(run("evaluate", "lstm", "--json").out)
    for split in ("test", "validation"):
        other = json.loads(run("evaluate", "lstm", "--split", split, "--lengths", "13:15", "--json").out)
        assert {row["length"] for row in other["by_length"]} <= {13, 15}
        assert other == json.loads((tmp_path / "lstm" / f"{split}-13-15.json").read_text())
    assert saved == json.loads((tmp_path / "lstm" / "test.json").read_text())
    assert "no strings of lengths 2..2" in run("evaluate", "lstm", "--lengths", "2", code=2).err
    made = [
        json.loads(line) for line in run("generate", "rns-1-2", "--count", "4", "--json").out.splitlines()
    ]
    assert len(made) == 4
    assert all(len(row["string"]) <= 11 for row in made)
    beam = run("generate", "rns-1-2", "--beam", "3", "--prefix", "01#", "--count", "2").out.splitlines()
    assert all(line.split("\t")[2].startswith("01#") for line in beam)
    assert "3 " in run("show", "lstm", "--out", "curve.png").out
    assert (tmp_path / "curve.png").exists()
    shown = json.loads(run("show", "lstm", "--json").out)
    assert [(line["epoch"], line["seconds"] > 0) for line in shown] == [(1, True), (2, True), (3, True)]
    assert len(json.loads(run("show", "lstm", "--json", "--out", "curve.pdf").out)) == 3
    assert (tmp_path / "curve.pdf").exists()
    rows = json.loads(run("compare", "lstm", "rns-1-2", "--json", "--out", "both.svg").out)
    assert [row["model"] for row in rows] == ["lstm", "rns-1-2"]
    assert all(name in (tmp_path / "both.svg").read_text() for name in ("LSTM", "RNS 1-2"))
    assert "rns-1-2" in run("compare", "lstm", "rns-1-2").out


def test_tensorboard(run, tmp_path):
    run(
        "train",
        "dyck",
        "--model",
        "lstm",
        "--out",
        "x",
        *TINY,
        "--lengths",
        "4:8",
        "--tensorboard",
        "--quiet",
    )
    assert list((tmp_path / "x" / "tensorboard").glob("events.*"))


def test_without_tensorboard(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    error = run(
        "train", "dyck", "--model", "lstm", "--out", "x", "--lengths", "4", "--tensorboard", code=2
    ).err
    assert "pip install 'ndstack[tensorboard]'" in error


def test_a_run_that_has_just_begun_is_shown(run, tmp_path):
    Run.create(tmp_path / "x", small_config("lstm"))
    assert run("show", "x").out == "x: no epoch is complete yet\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["dyck", "--model", "lstm"], "no folder for the run given"),
        (["dyck", "--out", "x"], "no model given"),
        (["--model", "lstm", "--out", "x"], "no LANGUAGE"),
        (["dyck", "--model", "ltsm", "--out", "x"], "did you mean lstm"),
        (["dick", "--model", "lstm", "--out", "x"], "did you mean dyck"),
        (["dyck", "--model", "lstm", "--out", "x", "--set", "training.clap=1"], "did you mean clip?"),
        (
            ["dyck", "--model", "lstm", "--out", "x", "--set", "x=1"],
            "x: there is no such name; there are format, ",
        ),
        (["dyck", "--model", "lstm", "--out", "x", "--set", "clip"], "is not a setting"),
        (["dyck", "--model", "lstm", "--out", "x", "--learning-rate", "-1"], "training.learning_rate"),
        (["dyck", "--model", "lstm", "--out", "x", "--set", "training.learning_rate=abc"], "; 'abc' given"),
        (["dyck", "--model", "lstm", "--out", "x", "--config", "no.toml"], "cannot read no.toml"),
        (["dyck", "--model", "lstm", "--out", "x", "--device", "cuda"], "finds no CUDA device"),
        (["dyck", "--model", "lstm", "--out", "x", "--lengths", "41"], "no strings of lengths 41..41"),
        (["dyck", "--grammar", "g.cfg", "--model", "lstm", "--out", "x"], "LANGUAGE and --grammar given"),
        (["--resume", "nowhere"], "is not a run"),
        (["dyck", "--out", "x", "--resume", "x"], "--out and --resume given"),
    ],
)
def test_wrong_input_is_one_line(arguments, message, run, tmp_path):
    error = run("train", *arguments, code=2).err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_settings_as_typed():
    assert parse_setting("training.clip=3") == {"training": {"clip": 3}}
    assert parse_setting("data.lengths=[3, 9]") == {"data": {"lengths": [3, 9]}}
    assert parse_setting("training.device=cpu") == {"training": {"device": "cpu"}}


def test_the_command_trains_in_stages_shows_and_compares_them(run, tmp_path):
    options = ["--train", "20", "--threads", "1", "--set", "options.hidden=5"]
    stages = ["--stages", "3:5@2/1/0.02,3:7@1,3:9@3//0.01"]
    lines = run("train", "marked-reversal", "--model", "lstm", "--out", "x", *stages, *options).out
    *epochs, result = [json.loads(line) for line in lines.splitlines()]
    assert epochs == Run.open(tmp_path / "x").metrics()
    config = Run.open(tmp_path / "x").config
    assert (config.data.lengths, config.data.test_lengths) == ((3, 9), (3, 11))
    assert (config.training.max_epochs, config.training.learning_rate) == (3, 0.01)
    first, second = (stage.model_dump() for stage in config.training.stages)
    assert first == {"lengths": (3, 5), "max_epochs": 2, "stop_after": 1, "learning_rate": 0.02}
    assert second == {"lengths": (3, 7), "max_epochs": 1, "stop_after": 10, "learning_rate": 0.01}
    last = [line for line in epochs if line["stage"] == 3]
    assert result["difference"] == min(line["validation_difference"] for line in last)
    table = run("show", "x").out
    (best,) = (line for line in table.splitlines() if " * " in line and not line.startswith("*"))
    assert best.split()[:3] == [str(result["best_epoch"]), "*", "3"]
    (row,) = json.loads(run("compare", "x", "--out", "both.svg", "--json").out)
    assert row["difference"] == result["difference"]
    assert "--lengths and --stages given" in run("train", "dyck", *stages, "--lengths", "4:8", code=2).err
