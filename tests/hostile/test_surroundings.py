"""Odd names, odd locales, closed streams, full disks, two at once."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ndstack import files
from ndstack.errors import DatasetError
from tests.commands import ndstack
from tests.hostile.bad import GRAMMAR, SMALL, refused


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
    accepted = process(
        "automaton", "--grammar", "./é.cfg".encode(), "éé".encode(), cwd=tmp_path, env=os.environ | changes
    )
    assert accepted.returncode == 0, accepted.stdout
    failed = process("grammar", b"./\xff\xfe", cwd=tmp_path, env=os.environ | changes)
    assert failed.returncode == 2
    assert failed.stderr.startswith(b"ndstack: error: cannot read the grammar file")
    assert failed.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_input_or_output(closed):
    command = f"{sys.executable} -m ndstack sample dyck --lengths 4 --count 1 {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot restrict a process")
def test_one_core(tmp_path):
    """A command that nobody told about threads does not complain about their number."""
    core = min(os.sched_getaffinity(0))
    (tmp_path / "file").touch()
    done = process(
        "demo", "--quick", "--out", tmp_path / "file", preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"ndstack: error: ")
    assert done.stderr.count(b"\n") == 1


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


SEVERAL = """
import json, os, sys
from ndstack.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["ndstack", *(os.fsdecode(word.encode()) for word in words)]  # as from a shell
    try:
        main()
    except SystemExit as end:
        print("CODE", end.code, flush=True)
"""


@pytest.mark.parametrize("locale, name", [("de_DE.ISO-8859-1", "a b"), ("C", "é b")])
def test_main_commands_without_a_terminal_or_utf_8_and_with_spaces_in_all_names(locale, name, tmp_path, good):
    """In one process, since each would take seconds to begin. Names may be refused that are not ASCII."""
    (tmp_path / f"{name}.cfg").write_text(GRAMMAR)
    run, text, corpus, text_run = (f"{name} {part}" for part in ("run", "text", "corpus", "text run"))
    commands = [
        ["grammar", f"{name}.cfg", "--to", "greibach"],
        ["sample", "--grammar", f"{name}.cfg", "--lengths", "3"],
        ["dataset", "--grammar", f"{name}.cfg", "--lengths", "3:5", "--train", "4", "--out", f"{name} data"],
        ["train", "dyck", *SMALL.split(), "--out", run],
        ["train", "--resume", run],
        ["evaluate", run, "--out", f"{name}.png"],
        ["show", run],
        ["compare", run, run],
        ["generate", run, "--count", "2"],
        ["text", "example", "--sentences", "10", "--out", text],
        ["text", "prepare", text, "--out", corpus],
        ["text", "train", corpus, "--model", "lstm", "--hidden", "4", "--max-epochs", "1", "--out", text_run],
        ["text", "evaluate", text_run],
        ["text", "generate", text_run, "--count", "2"],
        ["text", "surprisal", text_run, "the naïve pilot", "--out", f"{name} bits.svg"],
        ["text", "sg", text_run, f"{text}/suites"],
        ["text", "pairs", text_run, f"{text}/pairs.jsonl"],
        ["report", str(good["sweep"]), "--out", f"{name} report"],
    ]
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("TERM", None)
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(commands)],
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=300,
    )
    codes = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(b"CODE")]
    if name.isascii():
        assert codes == [0] * len(commands), done.stderr[-2000:]
        made = {path.name for path in tmp_path.iterdir()}
        assert made >= {f"{name}{end}" for end in (".png", " run", " corpus", " bits.svg", " report")}
    else:
        assert len(codes) == len(commands), done.stderr[-2000:]
        assert set(codes) <= {0, 2}
        errors = done.stderr.splitlines()
        assert sum(line.startswith(b"ndstack: error: ") for line in errors) == codes.count(2)


@pytest.mark.parametrize(
    "line",
    [f"train dyck {SMALL} --out busy", "text train {corpus} --model lstm --hidden 4 --out busy"],
)
def test_a_folder_that_another_process_begins_to_write_to(line, tmp_path, good):
    (tmp_path / "busy").mkdir()
    with files.locked(tmp_path / "busy"):
        error = refused(*(word.format_map(good) for word in line.split()), cwd=tmp_path)
    assert f"is in use by process {os.getpid()}" in error


def test_a_sweep_or_run_that_is_at_work_elsewhere(tmp_path, good):
    sweep = (
        "sweep",
        good["experiment"],
        "--corpus",
        good["corpus"],
        "--workers",
        "0",
        "--out",
        good["sweep"],
    )
    for folder, words in (("sweep", sweep), ("run", ("train", "--resume", good["run"], "--max-epochs", "9"))):
        with files.locked(good[folder]):
            assert f"is in use by process {os.getpid()}" in refused(*words, cwd=tmp_path)


def test_of_two_that_make_the_same_folder_one_wins_and_all_of_it_is_there(tmp_path):
    def make(name, meanwhile=lambda: None):
        with files.new_folder(tmp_path / "same", "the text") as draft:
            (draft / name).write_text(name)
            meanwhile()

    with pytest.raises(DatasetError, match=r"cannot write the text .*same: Directory not empty"):
        make("slow", meanwhile=lambda: make("quick"))
    assert [path.name for path in tmp_path.iterdir()] == ["same"]
    assert [path.name for path in (tmp_path / "same").iterdir()] == ["quick"]


def test_two_commands_at_once(tmp_path):
    sizes = ("--train", "200", "--validation", "10", "--test-per-length", "1", "--lengths", "40:44")
    command = [sys.executable, "-m", "ndstack", "dataset", "dyck", *sizes, "--out", "same"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) for _ in range(2)]
    errors = [one.communicate(timeout=300)[1] for one in both]
    codes = sorted(one.returncode for one in both)
    assert codes == [0, 2], errors
    assert sum(error.count(b"\n") for error in errors) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["same"]
    assert len((tmp_path / "same" / "train.txt").read_text().splitlines()) == 200
