"""The dissertation's figures; the name or the first line of each module has their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ndstack.experiments.experiment import Experiment, Kind, Output
from ndstack.experiments.figures.accuracy_by_length import draw_accuracies
from ndstack.experiments.figures.capacity_9_1_to_9_3 import draw_capacity
from ndstack.experiments.figures.learning_curves import draw_curves
from ndstack.experiments.figures.scatter_7_2 import draw_scatter
from ndstack.experiments.figures.stack_views_6_2_9_4_9_5 import draw_evolution, draw_heatmaps, draw_readings
from ndstack.experiments.results import Finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Draw = Callable[[Output, Experiment, Sequence[Finished]], Figure]

DRAW: Mapping[Kind, Draw] = {
    "curves": draw_curves,
    "accuracy": draw_accuracies,
    "capacity": draw_capacity,
    "scatter": draw_scatter,
    "evolution": draw_evolution,
    "pca": draw_readings,
    "heatmaps": draw_heatmaps,
}


def draw_figure(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure | None:
    """Return the figure of an output, drawn from the runs of its experiment; None if it is a table."""
    draw = DRAW.get(output.kind)
    languages, labels = experiment.shown_languages(output), experiment.shown_models(output)
    shown = [one for one in runs if one.record.base_language in languages and one.label in labels]
    return None if draw is None else draw(output, experiment, shown)
