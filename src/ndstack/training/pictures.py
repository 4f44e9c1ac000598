"""Figures of learning curves, and of results by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ndstack.model_names import label
from ndstack.plotting import (
    label_lines,
    mark_lower_bound,
    mark_training_lengths,
    model_styles,
    new_axes,
    scale_differences,
)
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
    styles = model_styles(histories)
    for name, history in histories.items():
        epochs, values = [line["epoch"] for line in history], [line[key] for line in history]
        marker = "o" if len(epochs) < 3 else None
        axes.plot(epochs, values, label=label(name), marker=marker, **styles[name])
        for border in stage_borders(history):
            axes.axvline(border, color=styles[name]["color"], linewidth=0.8, linestyle=":")
    axes.set(xlabel="epoch", ylabel=VALIDATION[key], title=title)
    axes.locator_params(axis="x", integer=True)
    if key == "validation_perplexity":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.yaxis.set_minor_formatter("{x:.0f}")
    elif key == "validation_difference":
        scale_differences(axes)
        mark_lower_bound(axes)
    label_lines(figure)
    return figure


def stage_borders(history: Sequence[Metrics]) -> list[float]:
    """Return the places between the last epoch of each stage and the first epoch of the next."""
    stages = [line.get("stage", 1) for line in history]
    return [place + 0.5 for place in range(1, len(stages)) if stages[place] != stages[place - 1]]


def draw_by_length(
    evaluations: Mapping[str, Measured], title: str = "", training: tuple[int, int] | None = None
) -> Figure:
    """Draw the cross-entropy difference, or the accuracy, by the length of strings, a line for each name.

    Args:
        evaluations: the results, by the names of the models.
        title: the title of the figure.
        training: the smallest and the greatest length of the training strings, to be marked.
    """
    figure, axes = new_axes()
    styles, shown = model_styles(evaluations), ""
    for name, evaluation in evaluations.items():
        values, shown = evaluation.values_by_length(), evaluation.shown
        marker = "o" if len(values) < 3 else None
        axes.plot(list(values), list(values.values()), label=label(name), marker=marker, **styles[name])
    axes.set(xlabel="length", ylabel=shown, title=title)
    if training is not None:
        mark_training_lengths(axes, *training)
    if shown == "accuracy":
        axes.axhline(1, color="#888888", linewidth=0.8)
    else:
        scale_differences(axes)
        mark_lower_bound(axes)
    label_lines(figure)
    return figure
