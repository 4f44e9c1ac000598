"""How commands show what they found."""

from collections.abc import Iterable, Sequence

WIDE = 200
"""Columns where there is no terminal whose width counts."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers with four decimals."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
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
