"""Figures 5.3, 6.1, 8.1, 8.2 and 10.2: validation results by epoch, and test results by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_band, draw_legend, draw_line
from ndstack.experiments.results import Finished, mean_by_length, mean_curve, select
from ndstack.plotting import new_grid
from ndstack.settings.data import DataConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW = 9.0, 2.1


def draw_curves(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a row for each language, with validation by epoch on the left and test by length on the right."""
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 2, WIDTH, ROW * len(tongues) + 0.7)
    for language, (left, right) in zip(tongues, grid, strict=True):
        for index, label in enumerate(labels):
            mine = [one for one in runs if one.label == label and one.language == language]
            chosen = select(mine, output.select)
            if not chosen:
                continue
            mean, deviation = mean_curve(chosen)
            epochs = range(1, len(mean) + 1)
            draw_line(left, epochs, mean, label, index)
            if len(chosen) > 1:
                draw_band(left, epochs, mean, deviation, index)
            tested = [one for one in chosen if one.test]
            if tested:
                lengths, by_length, by_length_deviation = mean_by_length(tested)
                draw_line(right, lengths, by_length, label, index)
                if len(tested) > 1:
                    draw_band(right, lengths, by_length, by_length_deviation, index)
        left.set_title(language, fontsize=10)
        left.set_ylabel("difference (nats)")
        left.locator_params(axis="x", integer=True)
        left.set_xlim(left=0)
        left.set_ylim(bottom=min(0.0, left.get_ylim()[0]))
        right.set_title(f"{language}, test", fontsize=10)
        _mark_training_lengths(right, experiment)
    for axes, name in zip(grid[-1], ("epoch", "length"), strict=True):
        axes.set_xlabel(name)
    draw_legend(figure, [axes for row in grid for axes in row], labels)
    return figure


def _mark_training_lengths(axes: Axes, experiment: Experiment) -> None:
    """Draw a line after the longest training strings, and one at 0."""
    longest = DataConfig.model_validate(experiment.settings.get("data", {})).lengths[1]
    axes.axvline(longest + 0.5, color="#888888", linewidth=0.8, linestyle=":")
    axes.axhline(0, color="#888888", linewidth=0.8)
