"""Figures 6.2, 9.4 and 9.5: what stacks do in trained networks (`ndstack.experiments.stack_views`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ndstack import model_names
from ndstack.analysis.figures.pca import draw_points
from ndstack.analysis.figures.picture import heat_map
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.results import Finished
from ndstack.plotting import new_axes, new_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREYS = "Greys"
"""The colours: black is 1 and white is 0, as in the dissertation."""
SHOWN = 3
"""The number of runs in figure 9.5."""


def draw_evolution(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw the share of the correct action type at each position, after each epoch (figure 6.2)."""
    labels, able = experiment.shown_models(output), [one for one in runs if one.has("evolution")]
    chosen = {label: [one for one in able if one.label == label] for label in labels}
    panels = {label: min(found, key=lambda one: one.score) for label, found in chosen.items() if found}
    if not panels:
        return _nothing(output)
    figure, grid = new_grid(1, len(panels), 4.0 * len(panels), 3.0)
    for (label, one), axes in zip(panels.items(), grid[0], strict=True):
        view = one.evolution()
        heat_map(axes, np.array(view.values), colors=GREYS)
        axes.set(title=model_names.label(label), xlabel="position", ylabel="epoch")
        axes.set_yticks([0, len(view.values) - 1], [str(view.epochs[0]), str(view.epochs[-1])])
    return figure


def draw_readings(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw principal components of the readings before each symbol of the second half (figure 9.4)."""
    able = [one for one in runs if one.has("readings")]
    if not able:
        return _nothing(output)
    best = min(able, key=lambda one: one.score)
    view = best.readings()
    title = f"{model_names.label(best.record.model)} on {best.language}"
    return draw_points(np.array(view.points), np.array(view.variance), view.labels, title).figure


def draw_heatmaps(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw the readings of the best run and others over time, from top to bottom (figure 9.5)."""
    chosen = sorted((one for one in runs if one.has("heat_map")), key=lambda one: one.score)[:SHOWN]
    if not chosen:
        return _nothing(output)
    views = [one.heat_map() for one in chosen]
    word = views[0].word
    figure, grid = new_grid(1, len(chosen), 1.9 * len(chosen) + 0.4, 1.2 + 0.13 * len(word))
    for number, (one, view, axes) in enumerate(zip(chosen, views, grid[0], strict=True)):
        heat_map(axes, np.array(view.values), colors=GREYS)
        axes.set_xticks(range(len(view.names)), view.names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(word)), word if number == 0 else [""] * len(word), fontsize=7)
        axes.set_title("best" if number == 0 else f"restart {one.restart}", fontsize=9)
    return figure


def _nothing(output: Output) -> Figure:
    figure, axes = new_axes(4, 1)
    axes.text(0.5, 0.5, f"{output.label}: no trial is complete", ha="center", va="center")
    axes.set_axis_off()
    return figure
