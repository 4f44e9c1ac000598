"""Learning curves and results by length, as figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ndstack.plotting import line_style, new_axes
from ndstack.training.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIFFERENCE = "cross-entropy difference (nats)"


def draw_curves(histories: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """Validation over epochs, a line for each name; the difference to the lower bound where there is one."""
    figure, axes = new_axes()
    lines = [line for history in histories.values() for line in history]
    key, label = "validation_difference", f"validation {DIFFERENCE}"
    if not all(key in line for line in lines):
        key, label = "validation_cross_entropy", "validation cross-entropy (nats)"
    for index, (name, history) in enumerate(histories.items()):
        epochs, values = [line["epoch"] for line in history], [line[key] for line in history]
        marker = "o" if len(epochs) < 3 else None
        axes.plot(epochs, values, label=name, marker=marker, **line_style(index))
    axes.set(xlabel="epoch", ylabel=label, title=title)
    axes.locator_params(axis="x", integer=True)
    axes.set_ylim(bottom=min(0.0, *(line[key] for line in lines)) if lines else 0.0)
    axes.legend(frameon=False)
    return figure


def draw_by_length(evaluations: Mapping[str, Evaluation], title: str = "") -> Figure:
    """The cross-entropy difference for strings of each length, one line for each name."""
    figure, axes = new_axes()
    for index, (name, evaluation) in enumerate(evaluations.items()):
        rows = evaluation.by_length
        lengths = [row.length for row in rows if row.length is not None]
        marker = "o" if len(lengths) < 3 else None
        differences = [row.difference for row in rows]
        axes.plot(lengths, differences, label=name, marker=marker, **line_style(index))
    axes.set(xlabel="length", ylabel=DIFFERENCE, title=title)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.legend(frameon=False)
    return figure
