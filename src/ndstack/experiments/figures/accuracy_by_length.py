"""The accuracy on test strings by length, for recognisers and transducers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack import model_names
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_line
from ndstack.experiments.results import Finished, select
from ndstack.plotting import label_lines, mark_training_lengths, model_styles, new_grid
from ndstack.settings.data import DataConfig
from ndstack.settings.recipes import with_task_defaults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROW = 6.5, 2.3
MOST = 24
"""The greatest number of points of a line; neighbouring lengths share one."""


def draw_accuracies(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a panel for each language or transduction, with the mean of the selected runs of each model."""
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 1, WIDTH, ROW * len(tongues) + 0.7)
    data = DataConfig.model_validate(with_task_defaults(experiment.settings).get("data", {}))
    for language, (axes,) in zip(tongues, grid, strict=True):
        for label, style in model_styles(labels).items():
            mine = [one for one in runs if one.label == label and one.language == language]
            tested = [one for one in select(mine, output.select) if one.record.accuracy_by_length]
            if tested:
                draw_line(axes, *_mean(tested), model_names.label(label), style)
        axes.set_title(language, fontsize=10)
        axes.set_ylabel("accuracy")
        axes.set_ylim(0, 1.04)
        mark_training_lengths(axes, *data.lengths)
    grid[-1][0].set_xlabel("length")
    label_lines(figure, 7)
    return figure


def _mean(runs: Sequence[Finished]) -> tuple[list[float], list[float]]:
    """Return lengths, and the mean accuracy of all runs, averaged over neighbouring lengths."""
    tables = [one.record.accuracy_by_length for one in runs]
    lengths = sorted(set.intersection(*({*one} for one in tables)))
    size = -(-len(lengths) // MOST)
    parts = [lengths[first : first + size] for first in range(0, len(lengths), size or 1)]
    means = [statistics.fmean(one[length] for one in tables for length in part) for part in parts]
    return [statistics.fmean(part) for part in parts], means
