"""Figures 9.1, 9.2 and 9.3: how much information a stack can hold, by alphabet size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ndstack import model_names
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_band, draw_line
from ndstack.experiments.results import Finished, spread
from ndstack.grammars.graphs import grouped
from ndstack.plotting import label_lines, mark_lower_bound, model_styles, new_grid, scale_differences

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_capacity(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a panel for each language with the validation difference by alphabet size.

    Figure 9.1 shows means, figure 9.2 means and standard deviations, figure 9.3 the best runs.
    """
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 1, 6.4, 2.6 * len(tongues) + 0.7)
    for language, (axes,) in zip(tongues, grid, strict=True):
        for label, style in model_styles(labels).items():
            mine = [one for one in runs if one.label == label and one.record.base_language == language]
            by_size = sorted(grouped(mine, lambda one: one.alphabet_size).items())
            if not by_size:
                continue
            scores = {size: [one.score for one in group] for size, group in by_size}
            sizes, name = list(scores), model_names.label(label)
            if output.statistic == "best":
                draw_line(axes, sizes, [min(scores[size]) for size in sizes], name, style)
                continue
            means, deviations = zip(*(spread(scores[size]) for size in sizes), strict=True)
            draw_line(axes, sizes, means, name, style)
            if output.statistic == "deviation":
                draw_band(axes, sizes, np.array(means), np.array(deviations), style)
        axes.set_title(language, fontsize=10)
        axes.set_ylabel("difference (nats)")
        axes.set_xticks(experiment.alphabet_sizes)
        scale_differences(axes)
        mark_lower_bound(axes)
    grid[-1][0].set_xlabel("alphabet size k")
    label_lines(figure, 7)
    return figure
