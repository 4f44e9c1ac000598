"""Figures of learning curves, and of results by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ndstack.plotting import line_style, new_axes
from ndstack.training.measured import Measured
from ndstack.training.run import Metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALIDATION = {
    "validation_difference": "validation cross-entropy difference (nats)",
    "validation_perplexity": "validation perplexity",
    "validation_accuracy": "validation accuracy",
    "validation_cross_entropy": "validation cross-entropy (nats)",
}
"""What a learning curve may show, by its name in `metrics.jsonl`, the most informative first."""


def draw_curves(histories: Mapping[str, Sequence[Metrics]], title: str = "") -> Figure:
    """Draw a validation metric by epoch, with one line for each name, and dotted lines between stages.

    The metric is the first of `VALIDATION` that all histories have.
    """
    figure, axes = new_axes()
    lines = [line for history in histories.values() for line in history]
    key = next((key for key in VALIDATION if all(key in line for line in lines)), "validation_cross_entropy")
    for index, (name, history) in enumerate(histories.items()):
        epochs, values = [line["epoch"] for line in history], [line[key] for line in history]
        marker = "o" if len(epochs) < 3 else None
        axes.plot(epochs, values, label=name, marker=marker, **line_style(index))
        for border in stage_borders(history):
            axes.axvline(border, color=line_style(index)["color"], linewidth=0.8, linestyle=":")
    axes.set(xlabel="epoch", ylabel=VALIDATION[key], title=title)
    axes.locator_params(axis="x", integer=True)
    if key == "validation_perplexity":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.yaxis.set_minor_formatter("{x:.0f}")
    else:
        axes.set_ylim(bottom=min(0.0, *(line[key] for line in lines)) if lines else 0.0)
    axes.legend(frameon=False)
    return figure


def stage_borders(history: Sequence[Metrics]) -> list[float]:
    """Return the places between the last epoch of each stage and the first epoch of the next."""
    stages = [line.get("stage", 1) for line in history]
    return [place + 0.5 for place in range(1, len(stages)) if stages[place] != stages[place - 1]]


def draw_by_length(evaluations: Mapping[str, Measured], title: str = "") -> Figure:
    """Draw the cross-entropy difference, or the accuracy, by the length of strings, a line for each name."""
    figure, axes = new_axes()
    shown = ""
    for index, (name, evaluation) in enumerate(evaluations.items()):
        values, shown = evaluation.values_by_length(), evaluation.shown
        marker = "o" if len(values) < 3 else None
        axes.plot(list(values), list(values.values()), label=name, marker=marker, **line_style(index))
    axes.set(xlabel="length", ylabel=shown, title=title)
    axes.axhline(1 if shown == "accuracy" else 0, color="#888888", linewidth=0.8)
    axes.legend(frameon=False)
    return figure
