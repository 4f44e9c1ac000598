"""Wrong, odd and damaged input for every command: one line, exit code 2, and nothing left behind."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import ndstack

GRAMMAR = "S -> 'a' S 'b' [0.5] | 'c' [0.5]\n"
FILES = {
    "empty": b"",
    "bytes": bytes(range(256)) * 8,
    "nul": b"S -> 'a'\0 S\0\0",
    "latin": "S -> 'é'\n".encode("latin-1"),
    "utf-16": GRAMMAR.encode("utf-16"),
    "lists": b"[" * 100_000,
    "objects": b'{"a":' * 50_000,
    "tables": b"a = " + b"[" * 20_000,
    "number": b"1" * 6000,
    "escape": b"\x1b[31mS",
}
PLACES = ("missing", "folder", "dangling", "loop", "new\nline")
TAKERS = [
    ("grammar", "?"),
    ("sample", "--grammar", "?"),
    ("probability", "--grammar", "?", "a"),
    ("recognize", "--grammar", "?", "a"),
    ("automaton", "--grammar", "?", "a"),
    ("dataset", "--grammar", "?", "--out", "made"),
    ("train", "--grammar", "?", "--model", "lstm", "--out", "made"),
    ("train", "--data", "?", "--model", "lstm", "--out", "made"),
    ("train", "--resume", "?"),
    ("evaluate", "?"),
    ("generate", "?"),
    ("show", "?"),
    ("compare", "?"),
    ("text", "train", "?", "--model", "lstm", "--out", "made"),
    ("text", "train", "--resume", "?"),
    ("text", "evaluate", "?"),
    ("text", "generate", "?"),
    ("text", "surprisal", "?", "the"),
    ("text", "sg", "?", "?"),
    ("text", "pairs", "?", "?"),
    ("parse", "?", "ab"),
    ("draw", "?", "ab", "--out", "made.svg"),
    ("sweep", "?", "--out", "made"),
    ("report", "?"),
    ("explore", "?", "--no-browser"),
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder of files that nothing can be made of."""
    folder = tmp_path_factory.mktemp("odd")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    return folder


def refused(*arguments, cwd):
    """The error of a command, which is one short line and all that happens."""
    before = sorted(cwd.iterdir())
    result = ndstack(*arguments, cwd=cwd)
    assert result.returncode == 2, (arguments, result)
    assert result.stderr.startswith("ndstack: error: "), (arguments, result.stderr[:300])
    assert len(result.stderr) < 1000, arguments
    assert result.stderr[:-1].isprintable(), arguments
    assert sorted(cwd.iterdir()) == before, arguments
    return result.stderr


@pytest.mark.parametrize("command", TAKERS, ids=lambda command: " ".join(command))
def test_files_that_are_something_else(command, odd):
    for name in (*FILES, *PLACES):
        refused(*(name if part == "?" else part for part in command), cwd=odd)


SMALL = ("--model", "lstm", "--out", "made", "--lengths", "4:6", "--train", "10", "--max-epochs", "1")
NUMBERS = [
    (("sample", "dyck"), "--count", "-1 nan 1.5 x 9e9"),
    (("sample", "dyck"), "--seed", "-1 nan x"),
    (("sample", "dyck"), "--lengths", "-1 : 5:4 1:2:3 ² nan 99999999999999999999 " + "1" * 5000),
    (("dataset", "dyck", "--out", "made"), "--batch-size", "0 -1 nan"),
    (("train", "dyck", *SMALL), "--learning-rate", "0 -1 nan inf -inf x"),
    (("train", "dyck", *SMALL), "--processes", "0 -1 x"),
    (("train", "dyck", *SMALL), "--threads", "0 -1 x"),
    (("train", "dyck", *SMALL), "--max-epochs", "0 -1 1e9"),
    (("train", "dyck", *SMALL), "--seed", "-1 x 1e3"),
    (("train", "dyck", *SMALL), "--train", "-1 0 x"),
    (("train", "dyck", *SMALL), "--model", "rns rns-0-3 rns--1-3 sup-0 tf+ lstm-5 é rns-2-" + "9" * 5000),
    (("train", "dyck", *SMALL), "--set", "training.clip=nan training.decay=nan training=3 a=b = ...=1 "
     "options.hidden=0 data.lengths=[9,4] data.lengths=[5] training.checkpoint_seconds=nan model=3"),
    (("sample",), "", "dyck(k=0) dyck(k=-1) dyck(k=1e9) dyck( DYCK count-3(k=2) ../x"),
    (("sample",), "", f"dyck(k={'9' * 5000})"),
    (("text", "example", "--out", "made"), "--sentences", "-1 0 x"),
    (("reproduce", "cfls", "--out", "made"), "--scale", "x"),
    (("reproduce", "cfls", "--out", "made"), "--workers", "-1 x"),
    (("explore",), "--port", "-1 99999 x"),
    (("bench",), "", "x"),
]  # fmt: skip


@pytest.mark.parametrize("command, option, values", NUMBERS)
def test_numbers_and_names_out_of_range(command, option, values, tmp_path):
    for value in values.split():
        refused(*command, f"{option}={value}" if option else value, cwd=tmp_path)


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'say "x"', "naïve", "new\nline", "-dash", "$HOME", "%s", "a" * 200]
)
def test_odd_names_of_files_are_names(name, tmp_path):
    (tmp_path / name).write_text(GRAMMAR)
    done = ndstack("grammar", f"./{name}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "S -> 'a' S 'b' [0.5]\nS -> 'c' [0.5]\n")
    assert ndstack("sample", f"--grammar={name}", "--count=1", "--lengths=3", cwd=tmp_path).stdout == "acb\n"


def process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "ndstack", *arguments], capture_output=True, timeout=120, **options
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "1"},
        {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "TERM": ""},
    ],
)
def test_poor_surroundings(changes, tmp_path):
    (tmp_path / "é.cfg").write_text("S -> 'é' S | 'é'\n", encoding="utf-8")
    done = process("grammar", "./é.cfg".encode(), cwd=tmp_path, env=os.environ | changes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"S -> '")
    failed = process("grammar", b"./\xff\xfe", cwd=tmp_path, env=os.environ | changes)
    assert failed.returncode == 2
    assert failed.stderr.startswith(b"ndstack: error: cannot read the grammar file")
    assert failed.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_input_or_output(closed):
    command = f"{sys.executable} -m ndstack sample dyck --lengths 4 --count 1 {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nowhere_to_write(tmp_path):
    def no_large_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    with Path("/dev/full").open("w") as device:
        command = [sys.executable, "-m", "ndstack", "sample", "dyck", "--lengths", "4"]
        done = subprocess.run(command, stdout=device, stderr=subprocess.PIPE, timeout=120)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"No space left on device" in done.stderr
    unmeasured = os.environ | {"COVERAGE_PROCESS_CONFIG": ""}  # what `make coverage` writes is large, too
    failed = process(
        "dataset", "marked-copy", "--out", "made",
        cwd=tmp_path, env=unmeasured, preexec_fn=no_large_files,
    )  # fmt: skip
    assert (failed.returncode, failed.stderr.count(b"\n")) == (2, 1), failed.stderr
    assert not list(tmp_path.iterdir())
