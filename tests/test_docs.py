"""Every code block and command of README and docs is run."""

import ast
import functools
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ndstack.experiments.records import Tables
from tests.commands import ndstack

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ROOT / "examples" / "README.md",
]


def blocks(page):
    return re.findall(r"^```(python|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)
        else:
            run_console(text)


def run_console(text):
    """Run the lines after `$`; where output is shown, it has to come."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        program, *arguments = shlex.split(command)
        alone = program == "ndstack" and "|" not in arguments
        done = ndstack(*arguments) if alone else in_a_shell(command)
        failed = "ndstack: error" in shown
        assert done.returncode == (2 if failed else 0), done.stderr
        if shown:
            told = re.sub(r"^ndstack: compiling .*\n", "", done.stderr, flags=re.M)
            assert shown == done.stdout + told


def in_a_shell(command):
    found = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    changed = os.environ | {"PATH": found}
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=changed)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_figure_is_missing(page):
    assert not re.search(r"BENCH_|\bTBD\b|\?\?\?", page.read_text(encoding="utf-8"))


def anchors(page):
    """The headings of a page as the ends of links, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    plain = [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.M)
    ]
    before = [plain[:number].count(one) for number, one in enumerate(plain)]
    return [one + (f"-{count}" if count else "") for one, count in zip(plain, before, strict=True)]


@pytest.mark.parametrize("page", LINKED, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def written_by(program, folder, monkeypatch):
    """The text files that a program of docs/ writes, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    made = importlib.import_module(program)
    monkeypatch.setattr(made, "HERE", folder)
    made.main()
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def kept_in(folder, pattern):
    return {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / folder).glob(pattern)}


def test_pictures_are_what_the_code_draws(tmp_path, monkeypatch):
    assert kept_in("pictures", "*.svg") == written_by("pictures", tmp_path, monkeypatch)


def test_the_numbers_of_the_results_are_what_the_tables_say(monkeypatch, tmp_path):
    """If not: `python docs/results.py`."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    made = importlib.import_module("results")
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert made.fill(text, made.Page(Tables.read(ROOT / "results"))) == text
    assert text.count("<!-- made: ") > 5
    tasks = made.Tasks(Tables.read(ROOT / "results" / "tasks"))
    for name in made.PAGES:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert made.fill(text, tasks) == text
        assert text.count("<!-- made: ") > 1
    tasks.draw(tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert kept_in("results", "*-short.svg") | kept_in("results", "*-single.svg") == drawn


@functools.cache
def defined_in(file):
    """The functions, methods (`Class.method`), classes, arguments and module-level names of a Python file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {
        name.id
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.arg):
            names.add(node.arg)
    return names


def test_names_in_the_map_are_defined_where_it_says():
    page, checked = ROOT / "docs" / "map.md", 0
    for cell in re.findall(r"(?<=\| )[^|\n]*", page.read_text(encoding="utf-8")):
        for target, text in re.findall(r"\]\(([^)]+)\)([^\[]*)", cell):
            names = re.findall(r"`([^`]+)`", text)
            if target.endswith(".py"):
                assert {*names} <= defined_in(page.parent / target), (target, names)
                checked += len(names)
    assert checked > 200


def test_the_map_has_every_number():
    """As counted in the text: 20 definitions, 7 propositions and lemmas, the rest by chapter."""
    text = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    counts = {
        "eq.": {2: 8, 3: 1, 4: 9, 5: 2, 6: 2, 8: 5, 9: 4, 10: 2},
        "figure": {1: 5, 3: 1, 4: 2, 5: 3, 6: 2, 7: 2, 8: 2, 9: 5, 10: 2},
        "table": {6: 1, 7: 2, 9: 1},
    }
    wanted = [
        f"{kind} {c}.{n}"
        for kind, by in counts.items()
        for c, count in by.items()
        for n in range(1, count + 1)
    ]
    wanted += [f"definition {n}" for n in range(1, 21)] + ["algorithm 1", "algorithm 2"]
    wanted += [f"{'proposition' if n in (1, 5, 7) else 'lemma'} {n}" for n in range(1, 8)]
    rows = re.findall(r"^\| ([^|]*?):", text, re.M)
    found = {one for row in rows for one in row.split(", ")}
    assert not [one for one in wanted if one not in found]
