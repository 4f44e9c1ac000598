"""Figure 7.2: syntactic generalization against perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack import model_names
from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.results import Finished, perplexity
from ndstack.plotting import model_styles, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_scatter(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Draw the SG score against test perplexity, with one point for each run."""
    figure, axes = new_axes(5.4, 4.0)
    styles = model_styles(experiment.shown_models(output))
    for index, (label, style) in enumerate(styles.items()):
        mine = [one for one in runs if one.label == label and one.record.sg_score is not None]
        points = [(one.record.test_perplexity or perplexity(one), one.record.sg_score) for one in mine]
        if points:
            name, marker = model_names.label(label), "ox^s"[index % 4]
            axes.scatter(*zip(*points, strict=True), label=name, color=style["color"], marker=marker)
    axes.set(xlabel="test perplexity", ylabel="SG score")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    return figure
