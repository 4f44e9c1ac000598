"""How commands show what they found."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk import Tree

WIDE = 200
"""Columns where there is no terminal whose width counts."""


def warn(message: str) -> None:
    """One line on standard error about input that is accepted but is probably not what is meant."""
    print(f"ndstack: warning: {message}", file=sys.stderr)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: int | None = None,
    unbroken: Collection[str] = (),
) -> None:
    """Print a table; numbers with four decimals.

    Args:
        columns: their names.
        rows: a cell for each column.
        right: columns from this number on are flush right.
        unbroken: names of columns whose cells stay on one line.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for place, column in enumerate(columns):
        flush_right = right is not None and place >= right
        table.add_column(
            column,
            overflow="fold",
            justify="right" if flush_right else "left",
            no_wrap=column in unbroken,
        )
    for row in rows:
        table.add_row(*(_show(cell) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)


def _show(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.1f}" if abs(cell) >= 100 else f"{cell:.4f}"
    return "-" if cell is None else str(cell)


def nested_lists(tree: "Tree") -> list[object]:
    """A tree as nested lists, the label first."""
    return [tree.label(), *(child if isinstance(child, str) else nested_lists(child) for child in tree)]
