"""The command as a whole: one vocabulary, examples that parse, quick start-up, completion."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import typer

from ndstack.cli import app, arguments
from ndstack.cli.app import PANELS
from tests.commands import ndstack

ROOT: typer.core.TyperGroup = typer.main.get_command(app)
HEAVY = {
    "torch",
    "numba",
    "numpy",
    "scipy",
    "matplotlib",
    "fastapi",
    "uvicorn",
    "ray",
    "nltk",
    "lightning_fabric",
}
WITHOUT_JSON = {"ndstack explore"}  # it serves a page until it is ended


def walk(command, path):
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from walk(child, f"{path} {name}")
    elif not command.hidden:
        yield path, command


COMMANDS = dict(walk(ROOT, "ndstack"))


def examples(command):
    heading, *lines = command.epilog.split("\n\n")
    assert heading == "Examples:"
    return [line for line in lines if line.startswith("ndstack ")]


def shared(name):
    """The wordings and types that definitions in cli/arguments.py give to an option."""
    found = set()
    for value in vars(arguments).values():
        for option in getattr(value, "__metadata__", ()):
            if isinstance(option, typer.models.OptionInfo) and option.default == f"--{name}":
                found.add((option.help, option.metavar))
    return found


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_explains_itself_with_examples_of_its_own(path):
    command = COMMANDS[path]
    assert command.help.strip()
    assert examples(command)
    assert all(f"{example} ".startswith(f"{path} ") for example in examples(command))
    for option in command.params:
        assert option.name == "help" or option.help, option.name


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_every_word(path, monkeypatch):
    """Also those in angle brackets, which Markdown takes for tags."""
    monkeypatch.setenv("COLUMNS", "400")
    command = COMMANDS[path]
    shown = set(ndstack(*path.split()[1:], "--help").stdout.replace("│", " ").split())
    texts = [command.help, *(option.help for option in command.params)]
    assert {word for text in texts for word in (text or "").replace("`", "").split()} <= shown


def test_a_group_of_commands_alone_shows_its_help():
    alone = ndstack("text")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.split() == ndstack("text", "--help").stdout.split()


@pytest.mark.parametrize(
    "words, message",
    [
        ("evaluate", "Missing argument 'RUN'; see ndstack evaluate --help"),
        ("text prepare a", "Missing option '--out'; see ndstack text prepare --help"),
        ("trian", "No such command 'trian'. Did you mean 'train'?"),
    ],
)
def test_what_cannot_be_parsed_says_where_to_look(words, message):
    assert ndstack(*words.split()).stderr == f"ndstack: error: {message}\n"


@pytest.mark.parametrize("example", [one for c in [ROOT, *COMMANDS.values()] for one in examples(c)])
def test_examples_are_accepted(example):
    words = shlex.split(example)[1:]
    command = ROOT
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("ndstack", words)  # which raises an error for what it does not know


OTHERWISE = {
    ("--grammar", "ndstack recognize"),
    ("--split", "ndstack text prepare"),
    ("--split", "ndstack text prepare-pairs"),
}
"""One takes several grammars, the others say how to split."""


@pytest.mark.parametrize("name", ["out", "seed", "json", "quiet", "model", "grammar", "corpus", "split"])
def test_a_flag_means_the_same_everywhere(name):
    wordings = shared(name)
    assert wordings
    found = 0
    for path, command in COMMANDS.items():
        for option in command.params:
            if (f"--{name}", path) in OTHERWISE:
                continue
            if f"--{name}" in option.opts:
                found += 1
                assert (option.help, option.metavar) in wordings, path
    assert found > 1


def test_options_of_the_same_name_take_the_same_kind_of_value():
    kinds = {}
    for path, command in COMMANDS.items():
        for name, parameter in inspect.signature(command.callback).parameters.items():
            option = next(one for one in command.params if one.name == name)
            if option.param_type_name == "option":
                plain = getattr(parameter.annotation, "__origin__", parameter.annotation)  # of Annotated
                own = {one for one in typing.get_args(plain) if one is not type(None)}
                kinds.setdefault(option.opts[0], {})[path] = str(own or {plain})
    different = {name for name, own in kinds.items() if len(set(own.values())) > 1}
    assert different == {
        "--grammar",
        "--count",
        "--split",
    }  # recognize takes several; trees counts; prepare splits


def test_what_prints_results_prints_them_as_json():
    without = {path for path, c in COMMANDS.items() if not any("--json" in o.opts for o in c.params)}
    assert without == WITHOUT_JSON


def test_commands_are_in_the_order_of_the_panels():
    names = [name for panel in PANELS.values() for name in panel]
    assert ROOT.list_commands(None) == names
    assert names[0] == "demo"
    panels = {name: vars(command)["rich_help_panel"] for name, command in ROOT.commands.items()}
    assert all(panels[name] == panel for panel in PANELS for name in PANELS[panel])


def test_the_page_on_the_command_line_has_all_commands_in_the_same_order():
    page = Path(__file__).parent.parent / "docs" / "command-line.md"
    listed = re.findall(
        r"^\| `([a-z -]+)` \|", page.read_text(encoding="utf-8").partition("## Flags")[0], re.M
    )
    names = [name for panel in PANELS.values() for name in panel]
    own = [[path for path in COMMANDS if f"{path} ".startswith(f"ndstack {name} ")] for name in names]
    expected = [path for paths in own for path in paths]
    assert [f"ndstack {name}" for name in listed] == expected


def python(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_import_and_help_load_nothing_heavy():
    code = (
        "import json, sys\n"
        "import ndstack\n"
        "first = list(sys.modules)\n"
        "from ndstack.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    print('LOADED' + json.dumps([first, list(sys.modules)]))\n"
    )
    for words in (["--help"], ["train", "--help"], ["text", "sg", "--help"], ["--version"]):
        loaded = json.loads(python(code, *words).partition("LOADED")[2])
        assert HEAVY & set(loaded[0]) == set()
        assert HEAVY & set(loaded[1]) == set(), words
    assert "typer" not in loaded[0]


def complete(words, shell="bash"):
    """What the protocol of a shell answers for the last word."""
    line = " ".join(words)
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = os.environ | protocol | {"_NDSTACK_COMPLETE": f"complete_{shell}"}
    command = [sys.executable, "-m", "ndstack"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120).stdout


@pytest.mark.parametrize("words, found", [
    (["ndstack", "tr"], ["train", "transduce", "transductions", "trees"]),
    (["ndstack", "text", "s"], ["surprisal", "sg"]),
    (["ndstack", "train", "marked-re"], ["marked-reversal", "marked-reverse-and-copy"]),
    (["ndstack", "train", "dyck", "--model", "tf"], ["tf", "tf+sup-32", "tf+vrns-3-3-5"]),
    (["ndstack", "reproduce", "cap"], ["capacity"]),
])  # fmt: skip
def test_completion(words, found):
    assert complete(words).split() == found


def test_completion_of_other_shells():
    assert '"train"' in complete(["ndstack", "tr"], "zsh")
    assert complete(["ndstack", "tr"], "fish").startswith("train\t")


def test_completion_script_works_in_bash(tmp_path):
    program = tmp_path / "ndstack"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ndstack "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(ndstack --show-completion bash)"\n'
        "COMP_WORDS=(ndstack lang); COMP_CWORD=1; _ndstack_completion ndstack; echo ${COMPREPLY[@]}"
    )
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=120
    )
    assert (done.stdout, done.stderr) == ("languages\n", "")
