"""Figures: one style for all, colours that colour-blind readers can distinguish, SVG, PNG and PDF."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ndstack import files
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""The palette of Okabe and Ito, and brown."""
DASHES = ("-", "--", "-.", ":")
FORMATS = (".svg", ".png", ".pdf")

_STYLE: dict[RcKeyType, object] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ndstack",
}


def new_axes(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Axes]:
    """Return an empty figure of this size, in inches, in the style of this package, and its axes."""
    figure, grid = new_grid(1, 1, width, height)
    return figure, grid[0][0]


def new_grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """Return an empty figure of this size, in inches, and its axes in rows."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False).tolist()


class LineStyle(TypedDict):
    """The keyword arguments of matplotlib for the look of a line."""

    color: str
    linestyle: str


def line_style(index: int) -> LineStyle:
    """Return the colour and dashes of the line with this number; the first 32 lines all look different."""
    dashes = DASHES[index // len(COLORS) % len(DASHES)]
    return {"color": COLORS[index % len(COLORS)], "linestyle": dashes}


def render(figure: Figure, kind: str = "svg") -> bytes:
    """Return the content of a file with the figure; the same figure always gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file in the format of its suffix."""
    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, render(figure, path.suffix.lower()[1:]))


def check_format(path: Path | None) -> None:
    """Raise an error if a path is given whose suffix is not that of a picture."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise NdstackError(f"{path} cannot be drawn, expected a name that ends in {', '.join(FORMATS)}")
