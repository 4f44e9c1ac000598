"""Figure 7.2: syntactic generalization against perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.results import Finished, perplexity
from ndstack.plotting import line_style, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_scatter(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw the SG score against test perplexity, with one point for each run."""
    figure, axes = new_axes(5.4, 4.0)
    for index, label in enumerate(experiment.shown_models(output)):
        mine = [one for one in runs if one.label == label and one.record.sg_score is not None]
        points = [(one.record.test_perplexity or perplexity(one), one.record.sg_score) for one in mine]
        if points:
            color = line_style(index)["color"]
            axes.scatter(*zip(*points, strict=True), label=label, color=color, marker="ox^s"[index % 4])
    axes.set(xlabel="test perplexity", ylabel="SG score")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    return figure
