"""Lines, and bands of one standard deviation, of the panels of several figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack.experiments.stack_views import Floats
from ndstack.plotting import LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = Sequence[float] | Floats
BAND = 0.12
"""The opacity of bands, as in the dissertation."""


def draw_line(axes: Axes, x: Numbers, y: Numbers, label: str, style: LineStyle) -> None:
    """Draw the line of a model, with markers if it has only a few values."""
    marker = "o" if len(y) < 8 else None
    axes.plot(x, y, label=label, marker=marker, markersize=3.5, linewidth=1.4, **style)


def draw_band(axes: Axes, x: Numbers, mean: Floats, deviation: Floats, style: LineStyle) -> None:
    """Shade one standard deviation on both sides of a mean."""
    axes.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=BAND, linewidth=0)
