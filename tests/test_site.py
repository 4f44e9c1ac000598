"""The documentation as a site: complete, without broken links, and without help from other hosts."""

import html
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

import ndstack

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
MODULES = sorted(page.stem for page in REFERENCE.glob("[!R]*.md"))
for needed in ("material", "mkdocstrings_handlers.python", "latex2mathml"):
    pytest.importorskip(needed, reason="the extra `docs`; make install brings it")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a link that leads nowhere and an anchor that is not there are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_room_has_a_page_of_the_reference() -> None:
    assert set(ndstack._ROOMS) <= set(MODULES)
    listed = re.findall(r"\]\(([\w.]+)\.md\)", (REFERENCE / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == MODULES


def test_the_reference_has_every_public_name(site: Path) -> None:
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    documented = {line.split()[0] for line in inventory.splitlines()}
    for name in MODULES:
        module = importlib.import_module(f"ndstack.{name}")
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if not isinstance(value, ModuleType):
                paths = {f"ndstack.{name}.{public}", f"{getattr(value, '__module__', '')}.{public}"}
                assert paths & documented, f"ndstack.{name}.{public}"


def test_the_reference_shows_defaults_as_values(site: Path) -> None:
    page = (site / "reference" / "nn" / "index.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub("<[^>]*>", "", page))
    assert "DEFAULTS" not in text
    assert 'controller: str = "lstm"' in text
    assert "heads: int = 4" in text


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]* href="(?:https?:)?//', text), page


def test_the_search_knows_pages_and_docstrings_but_not_sources(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = [entry["location"] for entry in index["docs"]]
    assert "algorithm/#the-gradient-gathered" in places
    assert "reference/stacks/#ndstack.stacks.Stack" in places
    assert not [place for place in places if place.startswith("repository/src/")]


def test_sources_are_shown_on_pages_of_the_site(site: Path) -> None:
    page = (site / "map" / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="\.\./(repository/src/ndstack/[\w/]+\.py)/"', page))
    assert len(linked) > 50
    for place in linked:
        assert '<div class="highlight">' in (site / place / "index.html").read_text(encoding="utf-8")


def test_the_order_of_the_pages_is_that_of_the_index(hooks: ModuleType) -> None:
    index = "# Pages\n\n**One**\n\n- [A](a.md): x\n- [B](../b.md)\n\n**Two**\n\n- [C](c.md)\n"
    first, one, two, modules = hooks.navigation(index)
    assert first == "index.md"
    assert one == {"One": [{"A": "a.md"}, {"B": "repository/b.md"}]}
    assert two == {"Two": [{"C": "c.md"}]}
    assert {"ndstack.stacks": "reference/stacks.md"} in modules["Modules"]


def test_formulas_become_mathml(hooks: ModuleType) -> None:
    text = 'a <span class="arithmatex">\\(x &lt; y_1\\)</span> b <div class="arithmatex">\\[\nx^2\n\\]</div>'
    shown = hooks.on_page_content(text, None, None, None)
    assert shown.count("<math") == 2
    assert "<msub>" in shown
    assert "<msup>" in shown
    assert "arithmatex" not in shown
