"""The command as a user meets it."""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ndstack as ndstack_package
from ndstack.languages import NAMES, get
from tests.commands import ndstack, ok

ROOT = Path(__file__).parent.parent


def test_a_reader_that_stops_early_is_no_error():
    command = f"set -o pipefail; {sys.executable} -m ndstack sample dyck --count 3000 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert not done.stderr


def test_as_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "ndstack", "sample"]
    done = subprocess.run([*command, "dyck", "--count", "2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    failed = subprocess.run([*command, "dyk"], capture_output=True, text=True, timeout=120)
    assert failed.returncode == 2
    assert failed.stderr == "ndstack: error: there is no language called 'dyk'; did you mean dyck?\n"


@pytest.fixture
def grammar(tmp_path):
    file = tmp_path / "g.cfg"
    file.write_text("S -> 'a' S 'b' [0.5] | 'c' [0.5]\n")
    return file


def test_help_explains_itself_with_examples():
    for arguments in ((), ("--help",)):
        text = ok(*arguments)
        assert "Examples" in text
        assert "ndstack sample dyck" in text


def test_version():
    python, torch = platform.python_version(), importlib.metadata.version("torch")
    assert ok("--version") == f"ndstack {ndstack_package.__version__} (Python {python}, torch {torch})\n"


def test_languages_lists_all_with_a_member_each():
    text = ok("languages")
    assert all(name in text for name in NAMES)
    rows = json.loads(ok("languages", "--json"))
    assert [row["name"] for row in rows] == list(NAMES)
    assert all(row["sample"] in get(row["name"]) for row in rows)


def test_sample_with_probability():
    lines = ok(
        "sample", "dyck", "--lengths", "40:80", "--count", 10, "--seed", 1, "--with-probability"
    ).splitlines()
    assert len(lines) == 10
    language = get("dyck")
    for line in lines:
        log_p, word = line.split("\t")
        assert language.log_probability(word) == pytest.approx(float(log_p), abs=1e-6)
        assert 40 <= len(word) <= 80


def test_sample_is_decided_by_the_seed():
    first = ok("sample", "hardest-cfl", "--seed", 3)
    assert first == ok("sample", "hardest-cfl", "--seed", 3)
    assert first != ok("sample", "hardest-cfl", "--seed", 4)


def test_sample_from_a_grammar_file(grammar):
    assert ok("sample", "--grammar", grammar, "--lengths", 5, "--count", 1) == "aacbb\n"
    assert ok("sample", "--grammar", grammar, "--lengths", 3, "--count", 1, "--tree") == "(S a (S c) b)\n"
    row = json.loads(ok("sample", "--grammar", grammar, "--lengths", 3, "--count", 1, "--json"))
    assert row == {"string": "acb", "log_probability": 0.0}


def test_trees_as_nested_lists_and_probabilities_as_json(grammar):
    row = json.loads(ok("sample", "--grammar", grammar, "--lengths", 3, "--count", 1, "--tree", "--json"))
    assert row == {"string": "acb", "log_probability": 0.0, "tree": ["S", "a", ["S", "c"], "b"]}
    assert json.loads(ok("probability", "dyck", "((", "--json"))["log_probability"] is None


def test_symbols_with_spaces_go_around_by_tabs(tmp_path):
    (tmp_path / "g.cfg").write_text("S -> 'a man' 'sleeps'")
    shown = ok("sample", "--grammar", "g.cfg", "--lengths", 2, "--count", 1, cwd=tmp_path).rstrip("\n")
    assert shown == "a man\tsleeps"
    assert ok("probability", "--grammar", "g.cfg", shown, cwd=tmp_path).startswith("0.000000")


def test_output_on_terminals_without_unicode(tmp_path):
    command = [sys.executable, "-m", "ndstack", "automaton", "unmarked-reversal", "00"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0
    assert "\\u22a5" in done.stdout


def test_sample_of_symbols_longer_than_a_character():
    word = ok("sample", "marked-copy(k=12)", "--lengths", 9, "--count", 1).split()
    assert len(word) == 9


def test_probability(grammar):
    lines = ok("probability", "marked-copy", "01#01", "01#10").splitlines()
    assert [float(line.split("\t")[0]) for line in lines] == [
        pytest.approx(-2 * math.log(2), abs=1e-6),
        -math.inf,
    ]
    assert ok("probability", "--grammar", grammar, "acb").startswith("0.000000")


def test_automaton(tmp_path, grammar):
    picture = tmp_path / "stacks.svg"
    text = ok("automaton", "unmarked-reversal", "0110", "--out", picture)
    assert "accepted by 1 run" in text
    assert picture.read_text().startswith("<svg")
    rejected = ndstack("automaton", "--grammar", grammar, "aab", "--transitions")
    assert rejected.returncode == 1
    assert "rejected" in rejected.stdout
    assert "--c-->" in rejected.stdout
    row = json.loads(ok("automaton", "unmarked-reversal", "0110", "--json"))
    assert (row["accepted"], row["runs"], row["states"], len(row["run"])) == (True, 1, 3, 5)
    refused = ndstack("automaton", "unmarked-reversal", "01", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["runs"]) == (1, 0)


def test_trees_are_those_of_the_grammar_as_written(tmp_path):
    (tmp_path / "my.cfg").write_text("S -> S S | 'a'")
    lines = ok("trees", "--grammar", "my.cfg", "aaa", "--best", "5", "--bracketed", cwd=tmp_path).splitlines()
    assert lines[0] == "2 trees, probability 0.0625 in all"
    assert {line for line in lines if line.startswith("(")} == {
        "(S (S a) (S (S a) (S a)))",
        "(S (S (S a) (S a)) (S a))",
    }
    assert ok("trees", "--grammar", "my.cfg", "a" * 30, "--count", cwd=tmp_path).startswith(
        "1002242216651368 trees"
    )
    (tmp_path / "my.cfg").write_text("S -> S [1/4] | A 'b' [3/4]\nA -> 'a' A [1/2] | [1/2]")
    text = ok("trees", "--grammar", "my.cfg", "ab", "--out", "tree.svg", cwd=tmp_path)
    assert text.startswith(
        "infinitely many trees, probability 0.25 in all; these nonterminals derive themselves"
    )
    leaves = text.rstrip().splitlines()[-1].split()
    assert leaves == ["a", "ε", "b"]
    assert (tmp_path / "tree.svg").read_text().count("<svg") == 1
    found = json.loads(ok("trees", "--grammar", "my.cfg", "ab", "--best", "2", "--json", cwd=tmp_path))
    assert found["infinite"]
    assert found["count"] is None
    assert [tree["tree"] for tree in found["trees"]] == [
        ["S", ["A", "a", ["A"]], "b"],
        ["S", ["S", ["A", "a", ["A"]], "b"]],
    ]
    assert ndstack("trees", "--grammar", "my.cfg", "ba", cwd=tmp_path).returncode == 1


def test_a_grammar_too_large_to_compile_is_refused_at_once_with_what_there_is_instead(tmp_path):
    """A hundred rules, each variable at the left of others."""
    rules = "\n".join(
        f"N{i} -> N{(i + 1) % 100} N{(3 * i + 2) % 100} | N{(7 * i) % 100} 'b' | 'a{i}'" for i in range(100)
    )
    (tmp_path / "my.cfg").write_text(rules)
    for line in ("automaton --grammar my.cfg a0", "recognize --grammar my.cfg a0", "parse my.cfg a0"):
        began = time.process_time()
        result = ndstack(*line.split(), cwd=tmp_path)
        assert time.process_time() - began < 5
        assert result.returncode == 2
        assert "rules, more than the limit" in result.stderr
        assert "`ndstack trees` and `ndstack probability` work on the grammar itself" in result.stderr
    assert ok("trees", "--grammar", "my.cfg", "a0", cwd=tmp_path).startswith("1 tree")


def test_recognize_with_a_network(tmp_path):
    accepted = ok("recognize", "dyck", "([])", "()")
    assert accepted == "accept\t([])\naccept\t()\n"
    mixed = ndstack("recognize", "dyck", "([)]", "()")
    assert mixed.returncode == 1
    assert mixed.stdout == "reject\t([)]\naccept\t()\n"
    (tmp_path / "one.cfg").write_text("S -> A C\nA -> 'a' A 'b' |\nC -> 'c' C |")
    (tmp_path / "two.cfg").write_text("S -> 'a' S | B\nB -> 'b' B 'c' |")
    files = ("--grammar", tmp_path / "one.cfg", "--grammar", tmp_path / "two.cfg")
    result = ndstack("recognize", *files, "aabbcc", "aabbc", "--json")
    assert [json.loads(line)["accepted"] for line in result.stdout.splitlines()] == [True, False]


def test_bench_writes_its_figures_wherever_it_is_called_from(tmp_path):
    written = ROOT / "benchmarks" / "results" / "languages.json"
    written.unlink(missing_ok=True)
    result = ndstack("bench", "languages", "--json", cwd=tmp_path)
    assert result.returncode == 0
    assert "measuring languages" in result.stderr
    assert all(row["seconds"] > 0 for row in json.loads(written.read_text()))
    assert json.loads(result.stdout) == {"languages": json.loads(written.read_text())}
    assert list(tmp_path.iterdir()) == []


def test_bench_knows_its_names():
    result = ndstack("bench", "nothing")
    assert result.returncode == 2
    assert "expected all, languages, stacks, deterministic" in result.stderr


def test_grammar_is_printed_in_normal_forms(grammar):
    assert ok("grammar", grammar).splitlines() == ["S -> 'a' S 'b' [0.5]", "S -> 'c' [0.5]"]
    assert "Tb" in ok("grammar", grammar, "--to", "greibach")
    assert "'a' 'c' Tb" in ok("grammar", grammar, "--to", "2-greibach")
    assert json.loads(ok("grammar", grammar, "--json")) == {
        "start": "S",
        "rules": [
            {"left": "S", "right": ["'a'", "S", "'b'"], "weight": 0.5},
            {"left": "S", "right": ["'c'"], "weight": 0.5},
        ],
    }


def test_dataset(tmp_path):
    sizes = ["--train", "20", "--validation", "10", "--test-per-length", "1", "--lengths", "10:20"]
    sizes += ["--test-lengths", "10:20"]
    text = ok("dataset", "dyck", "--out", tmp_path / "d", *sizes)
    counts = json.loads(ok("dataset", "dyck", "--out", tmp_path / "e", *sizes, "--json"))
    assert (counts["train"], counts["validation"], counts["test"]) == (20, 10, 6)
    assert "20 training, 10 validation, 6 test strings of dyck" in text
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == [
        "header.json",
        "test.txt",
        "train.txt",
        "validation.txt",
    ]


def test_demo(tmp_path):
    text = ok("demo", "--quick", "--out", tmp_path / "demo")
    assert all(words in text for words in ("rns-2-3", "lstm", "The most probable run: probability"))
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    pictures = {"curves.svg", "by-length.svg", "stacks.svg", "attention.svg"}
    assert made == {"rns-2-3", "lstm", "results.json"} | pictures
    rows = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert [row["parameters"] for row in rows] == [4328, 2084]


def test_a_folder_that_is_there_is_refused_before_anything_is_sampled(tmp_path):
    (tmp_path / "kept").touch()
    result = ndstack("dataset", "dyck", "--train", 10**12, "--out", tmp_path)
    assert result.returncode == 2
    assert "exists and is not an empty folder" in result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("sample", "dyk"), "did you mean dyck?"),
        (("sample",), "give either a LANGUAGE or --grammar FILE"),
        (("sample", "dyck", "--grammar", "x"), "give either a LANGUAGE or --grammar FILE"),
        (("sample", "dyck", "--lengths", "41"), "dyck has no strings of length 41; nearby lengths: 36, 38"),
        (("sample", "dyck", "--lengths", "80:40"), "'80:40' is not a range of lengths"),
        (("sample", "dyck", "--lengths", "x"), "'x' is not a range of lengths"),
        (("sample", "dyck", "--lengths", "40:"), "'40:' is not a range of lengths"),
        (("sample", "dyck", "--lengths", "99999999999999999999"), "expected at most 20,000"),
        (("sample", "dyck(k=99999999999)"), "expected 1 to 10,000"),
        (("probability", "marked-reversal(k=12)", "10#01"), "'10#01' is not a symbol"),
        (("sample", "dyck", "--count", "x"), "--count"),
        (("sample", "dyck", "--count", "-1"), "--count"),
        (("sample", "--grammar", "nowhere.cfg"), "cannot read the grammar file nowhere.cfg: No such file"),
        (("sample", "count-3", "--tree"), "count-3 is not context-free and has no trees"),
        (("probability", "dyck"), "no strings given"),
        (("recognize", "count-3", "abc"), "is not context-free"),
        (("recognize", "dyck"), "no strings given"),
        (("automaton", "dyck", "(", ")"), "expected one string to read, got 2"),
        (("automaton", "dyck", "()", "--out", "x.png"), "x.png cannot be drawn, expected a name"),
        (("grammar", "nowhere.cfg", "--to", "chomsky"), "'chomsky' is not one of"),
        (("grammar", "nowhere.cfg"), "cannot read the grammar file"),
        (("dataset", "dyck", "--lengths", "41", "--out", "d"), "dyck has no strings of lengths 41..41"),
        (("reproduce", "cfls", "--suites", ".", "--out", "d"), "--suites given, but cfls is about formal"),
        (("frobnicate",), "No such command"),
        (("sample", "--frobnicate"), "No such option"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, tmp_path):
    result = ndstack(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not result.stdout


@pytest.mark.parametrize(
    "error, message",
    [
        (MemoryError(), "this needs more memory than there is; ask for something smaller"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "this needs more memory"),
        (OverflowError("int too large to convert to float"), "a number given is too large (int too large"),
    ],
)
def test_what_a_machine_has_no_room_for(error, message, monkeypatch):
    def fail(name):
        raise error

    monkeypatch.setattr("ndstack.languages.get", fail)
    result = ndstack("sample", "dyck")
    assert result.returncode == 2
    assert result.stderr.startswith(f"ndstack: error: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "sample --lengths 3 --grammar my.cfg",
        "grammar my.cfg",
        "probability aaa --grammar my.cfg",
        "parse my.cfg aaa",
        "draw my.cfg aaa",
        "explore my.cfg",
    ],
)
def test_a_grammar_that_loses_probability_is_warned_about(command, monkeypatch, tmp_path):
    monkeypatch.setattr("ndstack.analysis.explorer.catalogue.Catalogue.warm_up", lambda catalogue: None)
    monkeypatch.setattr("ndstack.analysis.explorer.server.serve", lambda *_: None)
    for share, warned in (("[2/3]", True), ("[1/2]", False)):
        (tmp_path / "my.cfg").write_text(f"S -> S S {share} | 'a' [{1 - eval(share[1:-1])}]")
        result = ndstack(*command.split(), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        warnings = [line for line in result.stderr.splitlines() if line.startswith("ndstack: warning: ")]
        assert len(warnings) == warned
        if warned:
            assert "my.cfg: derivations end with probability 0.5 only" in warnings[0]


@pytest.mark.parametrize("text, message", [
    ("", "the grammar is empty"),
    ("S → 'a'", "line 1: \"S → 'a'\" has → where an arrow is expected; use ->"),
    ("S ::= 'a'", "has ::= where an arrow is expected; use ->"),
    ("S -> 'a' [0.5] | 'b' [0.4]", "sum to 0.9 instead of 1"),
    ("S -> 'a' [1.5] | 'b' [-0.5]", "rule S -> 'b' has weight -0.5"),
    ("S -> 'a' [nan]", "rule S -> 'a' has weight nan"),
    ("S -> 'a' T [1]", "rule S -> 'a' T: nonterminal T has no rules"),
    ("S -> 'a' [1]\nT -> 'b' [1]", "rule T -> 'b': T cannot be reached"),
    ("S -> 'a' [0.5] | T [0.5]\nT -> T 'b' [1]", "rule T -> T 'b': T derives no string"),
])  # fmt: skip
def test_bad_grammars_are_one_line_that_names_file_and_rule(text, message, tmp_path):
    (tmp_path / "bad.cfg").write_text(text)
    result = ndstack("sample", "--grammar", "bad.cfg", cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("ndstack: error: bad.cfg: ")
    assert len(result.stderr.strip().splitlines()) == 1
