"""Lines, bands of one standard deviation, and legends of the panels of several figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack.experiments.stack_views import Floats
from ndstack.plotting import line_style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = Sequence[float] | Floats
BAND = 0.12
"""The opacity of bands, as in the dissertation."""


def draw_line(axes: Axes, x: Numbers, y: Numbers, label: str, index: int) -> None:
    """Draw the line of a model, with markers if it has only a few values."""
    marker = "o" if len(y) < 8 else None
    axes.plot(x, y, label=label, marker=marker, markersize=3.5, linewidth=1.4, **line_style(index))


def draw_band(axes: Axes, x: Numbers, mean: Floats, deviation: Floats, index: int) -> None:
    """Shade one standard deviation on both sides of a mean."""
    color = line_style(index)["color"]
    axes.fill_between(x, mean - deviation, mean + deviation, color=color, alpha=BAND, linewidth=0)


def draw_legend(figure: Figure, panels: Sequence[Axes], labels: Sequence[str]) -> None:
    """Draw one legend for all panels, above them, in the order of the models."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names = [label for label in labels if label in handles]
    if names:
        columns = max(1, int(figure.get_figwidth() / (0.6 + 0.085 * max(map(len, names)))))
        shown = [handles[name] for name in names]
        figure.legend(shown, names, loc="outside upper center", ncols=min(columns, len(names)), frameon=False)
