"""Figures 5.3, 6.1, 8.1, 8.2 and 10.2: validation results by epoch, and test results by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack import model_names
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_band, draw_line
from ndstack.experiments.results import Finished, mean_by_length, mean_curve, select
from ndstack.plotting import (
    label_lines,
    mark_lower_bound,
    mark_training_lengths,
    model_styles,
    new_grid,
    scale_differences,
)
from ndstack.settings.data import DataConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROW = 9.0, 2.1


def draw_curves(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a row for each language, with validation by epoch on the left and test by length on the right."""
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 2, WIDTH, ROW * len(tongues) + 0.7)
    for language, (left, right) in zip(tongues, grid, strict=True):
        for label, style in model_styles(labels).items():
            mine = [one for one in runs if one.label == label and one.language == language]
            chosen = select(mine, output.select)
            if not chosen:
                continue
            mean, deviation = mean_curve(chosen)
            epochs = range(1, len(mean) + 1)
            draw_line(left, epochs, mean, model_names.label(label), style)
            if len(chosen) > 1:
                draw_band(left, epochs, mean, deviation, style)
            tested = [one for one in chosen if one.test]
            if tested:
                lengths, by_length, by_length_deviation = mean_by_length(tested)
                draw_line(right, lengths, by_length, model_names.label(label), style)
                if len(tested) > 1:
                    draw_band(right, lengths, by_length, by_length_deviation, style)
        left.set_title(language, fontsize=10)
        left.set_ylabel("difference (nats)")
        left.locator_params(axis="x", integer=True)
        left.set_xlim(left=0)
        right.set_title(f"{language}, test", fontsize=10)
        mark_training_lengths(right, *DataConfig.model_validate(experiment.settings.get("data", {})).lengths)
        for axes in (left, right):
            scale_differences(axes)
            mark_lower_bound(axes)
    for axes, name in zip(grid[-1], ("epoch", "length"), strict=True):
        axes.set_xlabel(name)
    label_lines(figure, 7)
    return figure
