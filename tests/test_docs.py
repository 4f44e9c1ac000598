"""Every code block and command of README and docs is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=120, env=os.environ | {"PATH": path}
        )
        failed = "ndstack: error" in shown
        assert done.returncode == (2 if failed else 0), done.stderr
        if shown:
            assert shown == done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_figure_is_missing(page):
    assert not re.search(r"BENCH_|\bTBD\b|\?\?\?", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_pictures_are_what_the_code_draws(tmp_path, monkeypatch):
    kept = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "pictures").glob("*.svg")}
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import pictures
    finally:
        sys.path.pop(0)
    monkeypatch.setattr(pictures, "HERE", tmp_path)
    pictures.main()
    assert kept == {p.name: p.read_text(encoding="utf-8") for p in tmp_path.glob("*.svg")}
