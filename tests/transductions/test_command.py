"""The command `ndstack transductions`."""

import json

import pytest

from ndstack.transductions import NAMES, get, read_pairs
from tests.commands import ndstack, ok


def test_lists_all_with_a_correct_pair_each():
    rows = json.loads(ok("transductions", "--json"))
    assert [row["name"] for row in rows] == list(NAMES)
    for row in rows:
        task = get(row["name"])
        source = (
            row["source"] if all(len(symbol) == 1 for symbol in task.source) else tuple(row["source"].split())
        )
        assert "".join(task.apply(source)) == row["target"].replace(" ", "")
    assert all(name in ok("transductions") for name in NAMES)


def test_samples_pairs():
    lines = ok("transductions", "reverse-string", "--count", 5, "--lengths", "3:6").splitlines()
    assert len(lines) == 5
    for line in lines:
        source, target = line.split("\t")
        assert source[::-1] == target
        assert 3 <= len(source) <= 6
    row = json.loads(ok("transductions", "question-formation", "--generalization", "--count", 1, "--json"))
    assert row["source"][-1] == "quest"


def test_writes_pairs(tmp_path):
    ok("transductions", "bucket-sort", "--count", 30, "--lengths", "5:9", "--out", tmp_path / "pairs")
    data = read_pairs(tmp_path / "pairs", "characters")
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 3, 5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["reverse"], "there is no transduction called 'reverse'; did you mean reverse-string?"),
        (
            ["bucket-sort", "--generalization"],
            "bucket-sort has no generalization set; remove --generalization",
        ),
        (["modular-arithmetic", "--lengths", "4"], "modular-arithmetic has no inputs of lengths 4"),
    ],
)
def test_errors(arguments, message):
    result = ndstack("transductions", *arguments)
    assert (result.returncode, result.stderr) == (2, f"ndstack: error: {message}\n")
