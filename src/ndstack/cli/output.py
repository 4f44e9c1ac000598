"""Output of commands: tables and trees."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nltk import Tree

WIDE = 200
"""The width of tables that are not printed to a terminal, in characters."""


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: int | None = None,
    unbroken: Collection[str] = (),
) -> None:
    """Print a table, with four decimals for numbers below 100.

    Args:
        columns: the names of the columns.
        rows: the cells of each row.
        right: the number of the first column that is aligned to the right.
        unbroken: the names of columns whose cells are not wrapped.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for place, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if right is not None and place >= right else "left"
        table.add_column(column, overflow="fold", justify=justify, no_wrap=column in unbroken)
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
    """Return a tree as nested lists, each with the label first."""
    return [tree.label(), *(child if isinstance(child, str) else nested_lists(child) for child in tree)]
