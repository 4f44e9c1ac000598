"""docs/index.md has every page of docs, once."""

import re
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_every_page_is_listed_once():
    links = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert Counter(links) == Counter(pages)
