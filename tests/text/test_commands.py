import json
import sys

import pytest

from ndstack.cli import main
from tests.commands import ndstack


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An example text, its corpus and a run on it."""
    folder = tmp_path_factory.mktemp("text")
    with pytest.MonkeyPatch.context() as patch:
        for line in (
            f"text example --out {folder}/text --sentences 300",
            f"text prepare {folder}/text --out {folder}/corpus",
            f"text train {folder}/corpus --model rns-1-2 --out {folder}/run --hidden 12 --window 5 --rows 8 "
            "--length 20 --max-epochs 2 --learning-rate 5 --threads 1 --quiet",
        ):
            patch.setattr(sys, "argv", ["ndstack", *line.split()])
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code
    return folder


def run(capsys, monkeypatch, *arguments, code=0):
    monkeypatch.setattr(sys, "argv", ["ndstack", "text", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code or 0) == code, err
    return out if code == 0 else err


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *arguments, **more: run(capsys, monkeypatch, *arguments, **more)


def test_perplexity(call, folder):
    row = json.loads(call("evaluate", folder / "run", "--json"))
    lines = (folder / "text" / "test.txt").read_text().splitlines()
    assert row["tokens"] == sum(len(line.split()) + 1 for line in lines)
    assert 2 < row["perplexity"] < 32
    assert "validation: perplexity" in call(
        "evaluate", folder / "run", "--split", "validation", "--rows", "1"
    )


def test_resuming_a_complete_run_says_how_it_ended(call, folder):
    row = json.loads(call("train", "--resume", folder / "run", "--quiet").splitlines()[-1])
    assert row["epochs"] == 2
    longer = call("train", "--resume", folder / "run", "--max-epochs", 3, "--quiet").splitlines()[-1]
    assert json.loads(longer)["epochs"] == 3


def test_surprisals_as_table_picture_and_json(call, folder, tmp_path):
    sentence = "the pilot near the zebra laughs"
    table = call("surprisal", folder / "run", sentence, "--out", tmp_path / "s.svg")
    assert "zebra*" in table
    assert "read as <unk>" in table
    assert (tmp_path / "s.svg").read_text().startswith("<?xml")
    words = json.loads(call("surprisal", folder / "run", sentence, "--json"))
    assert [word["text"] for word in words] == [*sentence.split(), "<eos>"]
    assert [word["known"] for word in words] == [True] * 4 + [False] + [True] * 2


def test_surprisals_of_a_file(call, folder, tmp_path):
    (tmp_path / "s.txt").write_text("the pilot laughs\nthe pilots laugh\n")
    lines = call("surprisal", folder / "run", "--file", tmp_path / "s.txt", "--json").splitlines()
    assert [[word["text"] for word in json.loads(line)] for line in lines] == [
        ["the", "pilot", "laughs", "<eos>"],
        ["the", "pilots", "laugh", "<eos>"],
    ]


def test_the_way_from_a_grammar_to_a_corpus_is_told(call, tmp_path):
    made = json.loads(call("example", "--out", tmp_path / "a", "--sentences", 40, "--seed", 3, "--json"))
    assert (made["sentences"], made["seed"]) == (40, 3)
    assert all((tmp_path / "a" / name).exists() for name in made["made"])
    assert "is not an empty folder" in call("example", "--out", tmp_path / "a", code=2)
    header = json.loads(call("prepare", tmp_path / "a", "--out", tmp_path / "b", "--json"))
    (tmp_path / "words.txt").write_text("the\n")
    told = call("prepare", tmp_path / "a", "--out", tmp_path / "c", "--vocabulary", tmp_path / "words.txt")
    first, train, *_ = told.splitlines()
    assert first.endswith("c: 3 types, words separated by spaces")
    assert train.split()[:2] == ["train", f"{header['splits']['train']['tokens']:,}"]


def test_generation_without_chance(call, folder):
    made = [call("generate", folder / "run", "--greedy", "--json", "--max-length", 4) for _ in range(2)]
    row = json.loads(made[0])
    assert made[0] == made[1]
    assert 1 <= len(row["words"]) <= 4
    assert row["log_probability"] < 0


def test_generation(call, folder):
    made = call("generate", folder / "run", "--count", 3, "--prefix", "the pilots", "--max-length", 8)
    lines = made.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("the pilots ") for line in lines)


def test_suites_and_pairs(call, folder, tmp_path):
    suites = folder / "text" / "suites"
    row = json.loads(call("sg", folder / "run", suites, "--json", "--out", tmp_path / "c.svg"))
    assert set(row["hu"]["circuits"]) == {"Agreement", "Center Embedding"}
    assert 0 <= row["hu"]["score"] <= row["dissertation"]["score"] <= 1
    assert not row["unknown"]
    shown = call("sg", folder / "run", suites, "--by-suite")
    assert "embedded-clause" in shown
    assert "0 of 400 words read as <unk>" in shown
    pairs = json.loads(call("pairs", folder / "run", folder / "text" / "pairs.jsonl", "--json"))
    assert pairs["pairs"] == 80
    told = call("pairs", folder / "run", folder / "text" / "pairs.jsonl").splitlines()
    assert told[-1] == f"{pairs['accuracy']:.3f}  all 80 pairs; 0.0% of the words read as <unk>"
    assert told[:-1] == [f"{value:.3f}  {name}" for name, value in pairs["by_phenomenon"].items()]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["evaluate", "nowhere"], "is not a run"),
        (["train", "nowhere", "--model", "lstm", "--out", "x"], "is not a corpus"),
        (["train"], "expected CORPUS"),
        (["train", "{corpus}", "--resume", "{run}"], "expected --resume alone"),
        (["surprisal", "{run}", "--file", "nowhere.txt"], "cannot read nowhere.txt"),
        (["prepare", "nowhere", "--out", "x"], "neither a text file nor a folder"),
        (["sg", "{run}"], "no suites among"),
        (["sg", "{run}", "nowhere.json"], "cannot read nowhere.json"),
        (["surprisal", "{run}"], "no sentence"),
        (["surprisal", "{run}", "a", "--out", "x.txt"], "cannot be drawn"),
        (["train", "{corpus}", "--model", "lstm", "--out", "{run}"], "is not empty"),
    ],
)
def test_wrong_input_is_one_line(call, folder, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    filled = [part.format(run=folder / "run", corpus=folder / "corpus") for part in arguments]
    error = call(*filled, code=2)
    assert message in error
    assert error.count("\n") == 1


def test_one_file_is_prepared_with_a_split_and_a_warning_about_punctuation(tmp_path):
    (tmp_path / "book.txt").write_text("The dog, a cat; and more.\nYes, he did.\n" * 50)
    result = ndstack("text", "prepare", "book.txt", "--out", "plain", cwd=tmp_path)
    assert result.returncode == 0
    warnings = result.stderr.splitlines()
    assert "45% of the word types end in punctuation, such as" in warnings[0]
    assert "--tokenize words" in warnings[0]
    assert "has no validation part" in warnings[1]
    words = ("--split", "90/5/5", "--tokenize", "words")
    result = ndstack("text", "prepare", "book.txt", "--out", "split", *words, "--json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    header = json.loads(result.stdout)
    assert header["tokenize"] == "words"
    assert {name: part["lines"] for name, part in header["splits"].items()} == {
        "train": 90, "valid": 5, "test": 5
    }  # fmt: skip
    refused = ndstack("text", "prepare", "book.txt", "--out", "no", "--split", "90", cwd=tmp_path)
    assert refused.returncode == 2
    assert "'90' is not a split" in refused.stderr
