"""Figures: one style for all, colours that colour-blind readers can distinguish, SVG, PNG and PDF."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from ndstack import files, model_names
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""The palette of Okabe and Ito, and brown."""
GREY = "#777777"
FAMILIES = {
    "LSTM": "#777777",
    "Strat.": "#8C6D31",
    "Sup.": "#E69F00",
    "NS": "#56B4E9",
    "NS+S": "#009E73",
    "NS+U": "#CC79A7",
    "RNS": "#0072B2",
    "VRNS": "#D55E00",
    "Trans.": "#000000",
    "Trans. + Sup.": "#E69F00",
    "Trans. + VRNS": "#D55E00",
}
"""The colour of each kind of model, by its label."""
BEHIND = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
"""What is behind the labels, so that lines do not cross them."""
LINEAR = 0.01
"""The difference in nats below which a scale of differences is linear."""
DECADES = 30.0
"""The ratio of differences from which their scale is logarithmic."""
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


def model_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """Return the looks of the lines of some models, by name or label.

    A kind of model has the same colour in all figures. Models of the same kind in one figure have different
    dashes. Names that are not those of models have the remaining colours.
    """
    found: dict[str, LineStyle] = {}
    used: Counter[str] = Counter()
    families = {name: model_names.family(model_names.label(name)) for name in names}
    taken = {FAMILIES[kind] for kind in families.values() if kind}
    rest = itertools.cycle([color for color in COLORS if color not in taken] or COLORS)
    for name, kind in families.items():
        color = FAMILIES[kind] if kind else next(rest)
        found[name] = {"color": color, "linestyle": DASHES[used[color] % len(DASHES)]}
        used[color] += 1
    return found


def label_lines(figure: Figure, size: float = 8.0) -> None:
    """Write the label of each line beside its end, in its colour; overlapping labels are moved apart.

    Call it last: places are found for the panels, then for the labels, and then they are fixed.
    """
    figure.draw_without_rendering()
    for axes in figure.axes:
        _label_ends(axes, size)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _label_ends(axes: Axes, size: float) -> None:
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ends = []
    for line in lines:
        x, y = (np.asarray(part, float) for part in line.get_data())
        if len(x):
            at = axes.transData.transform((float(x[-1]), float(y[-1])))
            ends.append((float(at[1]), line, (float(x[-1]), float(y[-1]))))
    gap = 1.15 * size * axes.figure.dpi / 72
    ends.sort(key=lambda end: end[0])
    places = _apart([end[0] for end in ends], gap, axes.bbox.ymin, axes.bbox.ymax)
    for place, (height, line, end) in zip(places, ends, strict=True):
        axes.annotate(
            str(line.get_label()),
            end,
            xytext=(5, (place - height) * 72 / axes.figure.dpi),
            textcoords="offset points",
            va="center",
            fontsize=size,
            color=line.get_color(),
            bbox=BEHIND,
            annotation_clip=False,
        )


def _apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return heights, given in ascending order, at least `gap` apart, and within limits if possible."""
    places = [min(max(height, low), high) for height in heights]
    for _ in range(100):
        for one in range(len(places) - 1):
            short = gap - (places[one + 1] - places[one])
            if short > 0:
                places[one] -= short / 2
                places[one + 1] += short / 2
        if places and len(places) * gap < high - low:
            places = [place + max(0.0, low - places[0]) - max(0.0, places[-1] - high) for place in places]
    return places


def mark_lower_bound(axes: Axes) -> None:
    """Draw a line at a difference of 0, which is the lower bound, and name it."""
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.annotate(
        "lower bound",
        (0, 0),
        xycoords=("axes fraction", "data"),
        xytext=(3, 2),
        textcoords="offset points",
        fontsize=7,
        color=GREY,
        bbox=BEHIND,
    )


def mark_training_lengths(axes: Axes, low: float, high: float) -> None:
    """Shade the lengths of the training strings, and name them."""
    axes.axvspan(low, high, color="#f1f1ee", zorder=0, linewidth=0)
    axes.annotate(
        "training lengths",
        ((low + high) / 2, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, -3),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=7,
        color=GREY,
    )


def scale_differences(axes: Axes) -> None:
    """Set the scale for differences from the lower bound: logarithmic above 0.01 nats if they span decades.

    Below that the scale is linear, so that the lower bound itself, and values below it, can be seen.
    """
    data = [
        np.asarray(line.get_ydata(), float) for line in axes.get_lines() if len(np.shape(line.get_ydata()))
    ]
    values = np.concatenate([part for part in data if len(part) > 2] or [np.zeros(1)])
    values = values[np.isfinite(values)]
    if not len(values) or values.max() < DECADES * max(values.min(), LINEAR):
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        return
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    ticks = [0.0, *(10.0**power for power in range(-2, 3) if 10.0**power <= values.max())]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(min(0.0, values.min()), values.max() * 1.3)


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
