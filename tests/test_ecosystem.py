"""docs/ecosystem.md: every row of its tables names a test or says why not, and the tests exist."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
TEST = re.compile(r"\[([^\]]+)\]\(\.\./(tests/[^)]+)\)")
"""A link that names a test by its words."""


def test_every_test_that_is_named_exists():
    named = TEST.findall((DOCS / "ecosystem.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    for name, file in named:
        text = (DOCS.parent / file).read_text(encoding="utf-8")
        assert f"def test_{name.replace(' ', '_')}(" in text, (name, file)


def test_every_row_has_a_test_or_a_reason():
    rows = re.findall(
        r"^\| (.+) \| (.+) \| (.+) \|$", (DOCS / "ecosystem.md").read_text(encoding="utf-8"), re.M
    )
    rows = [row for row in rows if not row[1].startswith("ndstack")]
    assert len(rows) > 40
    for what, ours, why in rows:
        tests = TEST.findall(why)
        reason = re.sub(r"\[[^\]]+\]\([^)]+\)", "", why).strip(" (),;")
        shown = not ours.startswith(("no", "refused"))
        assert tests if shown and not reason else len(reason) > 15, what
