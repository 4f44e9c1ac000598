"""Figures 9.1, 9.2 and 9.3: how much information a stack can hold, by alphabet size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.figures.panels import draw_band, draw_legend, draw_line
from ndstack.experiments.results import Finished, spread
from ndstack.grammars.graphs import grouped
from ndstack.plotting import new_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_capacity(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw a panel for each language with the validation difference by alphabet size.

    Figure 9.1 shows means, figure 9.2 means and standard deviations, figure 9.3 the best runs.
    """
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 1, 6.4, 2.6 * len(tongues) + 0.7)
    for language, (axes,) in zip(tongues, grid, strict=True):
        for index, label in enumerate(labels):
            mine = [one for one in runs if one.label == label and one.record.base_language == language]
            by_size = sorted(grouped(mine, lambda one: one.alphabet_size).items())
            if not by_size:
                continue
            scores = {size: [one.score for one in group] for size, group in by_size}
            sizes = list(scores)
            if output.statistic == "best":
                draw_line(axes, sizes, [min(scores[size]) for size in sizes], label, index)
                continue
            means, deviations = zip(*(spread(scores[size]) for size in sizes), strict=True)
            draw_line(axes, sizes, means, label, index)
            if output.statistic == "deviation":
                draw_band(axes, sizes, np.array(means), np.array(deviations), index)
        axes.set_title(language, fontsize=10)
        axes.set_ylabel("difference (nats)")
        axes.set_xticks(experiment.alphabet_sizes)
    grid[-1][0].set_xlabel("alphabet size k")
    draw_legend(figure, [axes for row in grid for axes in row], labels)
    return figure
