"""The page of a report, which is one HTML file without any others."""

import dataclasses
import html
import re
from collections.abc import Sequence

from ndstack.experiments.sheets import Sheet, show_cell

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ddd; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid #eee; }
th:first-child, td:first-child { text-align: left; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; font-size: 14px; }
dt { color: #666; }
dd { margin: 0; }
.wide { overflow-x: auto; }
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the page."""

    title: str
    text: str = ""
    svg: str = ""
    sheet: Sheet | None = None
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    folded: bool = False
    """Whether the table is hidden at first."""
    level: int = 3


def render_page(title: str, text: str, parts: Sequence[Section]) -> str:
    """Return the page as HTML."""
    body = "".join(_part(number, part) for number, part in enumerate(parts))
    title, text = html.escape(title), html.escape(text)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n"
        f"</head>\n<body>\n<h1>{title}</h1>\n<p>{text}</p>\n{body}</body>\n</html>\n"
    )


def _part(number: int, part: Section) -> str:
    pieces = [f"<h{part.level}>{html.escape(part.title)}</h{part.level}>\n"]
    if part.text:
        pieces.append(f"<p>{html.escape(part.text)}</p>\n")
    if part.facts:
        rows = (
            f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in part.facts.items()
        )
        pieces.append(f"<dl>{''.join(rows)}</dl>\n")
    if part.svg:
        pieces.append(inline(part.svg, f"f{number}-", part.title))
    if part.sheet is not None:
        table = _table(part.sheet)
        pieces.append(f"<details><summary>numbers</summary>{table}</details>\n" if part.folded else table)
    return "".join(pieces)


def inline(svg: str, prefix: str, title: str) -> str:
    """Return an SVG for a page: without its XML header, and with identifiers that differ from others."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title, quote=True)}" ', 1)


def _table(sheet: Sheet) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in sheet.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(show_cell(cell))}</td>" for cell in row) + "</tr>\n"
        for row in sheet.rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>\n{"".join(rows)}</table></div>\n'
