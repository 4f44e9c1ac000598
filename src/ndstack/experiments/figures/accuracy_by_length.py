"""The accuracy on test strings by length, for recognisers and transducers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack import model_names
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_line
from ndstack.experiments.results import Finished, select
from ndstack.languages import get
from ndstack.plotting import label_lines, mark_training_lengths, model_styles, new_grid
from ndstack.settings.data import DataConfig
from ndstack.settings.recipes import with_task_defaults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROW = 6.5, 2.3
MOST = 24
"""The greatest number of points of a line; neighbouring lengths share one."""


def draw_accuracies(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a panel for each language or transduction, with the mean of the selected runs of each model.

    Languages without complete runs are left out.
    """
    labels, tested = experiment.shown_models(output), [one for one in runs if one.record.accuracy_by_length]
    tongues = [
        name for name in experiment.shown_languages(output) if any(one.language == name for one in tested)
    ]
    figure, grid = new_grid(max(len(tongues), 1), 1, WIDTH, ROW * max(len(tongues), 1) + 0.7)
    data = DataConfig.model_validate(with_task_defaults(experiment.settings).get("data", {}))
    for language, (axes,) in zip(tongues, grid, strict=False):
        for label, style in model_styles(labels).items():
            mine = [one for one in tested if one.label == label and one.language == language]
            if mine:
                tables = [_by_length(one) for one in select(mine, output.select)]
                draw_line(axes, *_mean(tables), model_names.label(label), style)
        axes.set_title(language, fontsize=10)
        axes.set_ylabel("accuracy")
        axes.set_ylim(0, 1.04)
        mark_training_lengths(axes, *data.lengths)
    grid[-1][0].set_xlabel("length")
    label_lines(figure, 7)
    return figure


def _by_length(run: Finished) -> dict[int, float]:
    """Return the accuracy by length; of a recogniser, at the lengths of strings that the language has.

    Other lengths have few strings, all of them outside of the language.
    """
    found = run.record.accuracy_by_length
    if run.record.settings.task != "recognize":
        return found
    kept = {*get(run.language).lengths(min(found), max(found))}
    return {length: accuracy for length, accuracy in found.items() if length in kept}


def _mean(tables: Sequence[dict[int, float]]) -> tuple[list[float], list[float]]:
    """Return lengths, and the mean accuracy of all runs, averaged over neighbouring lengths."""
    lengths = sorted(set.intersection(*({*one} for one in tables)))
    size = max(1, -(-len(lengths) // MOST))
    parts = [lengths[first : first + size] for first in range(0, len(lengths), size)]
    means = [statistics.fmean(one[length] for one in tables for length in part) for part in parts]
    return [statistics.fmean(part) for part in parts], means
