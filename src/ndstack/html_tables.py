"""Tables in HTML, by which grammars, automata, runs and results show themselves in a notebook."""

from collections.abc import Iterable, Sequence
from html import escape

Cell = str | int | float | None

MOST_ROWS = 60
"""The largest number of rows that are shown."""


def table(rows: Iterable[Sequence[Cell]], head: Sequence[str] = (), caption: str = "") -> str:
    """Return a table; every value is escaped, and rows beyond `MOST_ROWS` are counted instead of shown."""
    listed = list(rows)
    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align: left">{escape(caption)}</caption>')
    if head:
        lines.append(f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr></thead>")
    lines.append("<tbody>")
    for row in listed[:MOST_ROWS]:
        cells = "".join(f'<td style="text-align: left">{escape(_shown(cell))}</td>' for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    lines.append("</tbody></table>")
    if len(listed) > MOST_ROWS:
        lines.append(f"<p>and {len(listed) - MOST_ROWS} more rows</p>")
    return "\n".join(lines)


def preformatted(text: str) -> str:
    """Return a text as it is, with its line breaks; it is escaped."""
    return f"<pre>{escape(text)}</pre>"


def _shown(cell: Cell) -> str:
    """Return the text of a cell; numbers have five significant digits."""
    if cell is None:
        return ""
    return f"{cell:.5g}" if isinstance(cell, float) else str(cell)
