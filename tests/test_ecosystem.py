"""The tables of docs/ecosystem.md: every row names a test that exists, or says why not."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_every_row_has_a_test_or_a_reason():
    rows = re.findall(
        r"^\| (.+) \| (.+) \| (.+) \|$", (DOCS / "ecosystem.md").read_text(encoding="utf-8"), re.M
    )
    rows = [row for row in rows if not row[1].startswith("ndstack")]
    assert len(rows) > 40
    for what, ours, why in rows:
        tests = re.findall(r"\[([^\]]+)\]\(\.\./(tests/[^)]+)\)", why)
        for name, file in tests:
            text = (DOCS.parent / file).read_text(encoding="utf-8")
            assert f"def test_{name.replace(' ', '_')}(" in text, (what, name)
        reason = re.sub(r"\[[^\]]+\]\([^)]+\)", "", why).strip(" (),;")
        shown = not ours.startswith(("no", "refused"))
        assert tests if shown and not reason else len(reason) > 15, what
