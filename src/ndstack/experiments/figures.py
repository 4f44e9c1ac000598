"""The dissertation's figures: curves with bands, test by length, capacity, scatter, what stacks do inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ndstack.experiments.results import Finished, mean_by_length, mean_curve, perplexity, select, spread
from ndstack.experiments.spec import Experiment, Output
from ndstack.plotting import line_style, new_axes, new_grid
from ndstack.training.pictures import stage_borders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW = 9.0, 2.1
BAND = 0.12
"""Opacity of bands, as in the dissertation."""


def draw(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure | None:
    """The figure of an output; None if it is a table."""
    from ndstack.experiments import inside

    makers: dict[str, Any] = {
        "curves": draw_curves,
        "capacity": draw_capacity,
        "scatter": draw_scatter,
        "evolution": inside.draw_evolution,
        "pca": inside.draw_readings,
        "heatmaps": inside.draw_heatmaps,
    }
    maker = makers.get(output.kind)
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    shown = [one for one in runs if one.trial.base_language in tongues and one.trial.label in labels]
    return None if maker is None else maker(output, experiment, shown)


def draw_curves(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """A row for each language: validation by epoch on the left, test by length on the right."""
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 2, WIDTH, ROW * len(tongues) + 0.7)
    for language, (left, right) in zip(tongues, grid, strict=True):
        for index, label in enumerate(labels):
            mine = [one for one in runs if one.trial.label == label and one.trial.language == language]
            chosen = select(mine, output.select)
            if not chosen:
                continue
            mean, deviation = mean_curve(chosen)
            epochs = np.arange(1, len(mean) + 1)
            _line(left, epochs, mean, label, index)
            for border in stage_borders(chosen[0].history) if len(chosen) == 1 else ():
                left.axvline(border, color=line_style(index)["color"], linewidth=0.8, linestyle=":")
            lengths, by_length, by_length_deviation = mean_by_length(chosen)
            _line(right, lengths, by_length, label, index)
            if len(chosen) > 1:
                _band(left, epochs, mean, deviation, index)
                _band(right, lengths, by_length, by_length_deviation, index)
        left.set_title(language, fontsize=10)
        left.set_ylabel("difference (nats)")
        left.locator_params(axis="x", integer=True)
        left.set_xlim(left=0)
        left.set_ylim(bottom=min(0.0, left.get_ylim()[0]))
        right.set_title(f"{language}, test", fontsize=10)
        _mark_training_lengths(right, experiment)
    for axes, name in zip(grid[-1], ("epoch", "length"), strict=True):
        axes.set_xlabel(name)
    _legend(figure, [axes for row in grid for axes in row], labels)
    return figure


def draw_capacity(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """A panel for each language: the validation difference by alphabet size (figures 9.1 to 9.3)."""
    tongues, labels = experiment.shown_languages(output), experiment.shown_models(output)
    figure, grid = new_grid(len(tongues), 1, 6.4, 2.6 * len(tongues) + 0.7)
    for language, (axes,) in zip(tongues, grid, strict=True):
        for index, label in enumerate(labels):
            scores: dict[int, list[float]] = {}
            for one in runs:
                if one.trial.label == label and one.trial.base_language == language:
                    scores.setdefault(one.trial.alphabet_size, []).append(one.score)
            if not scores:
                continue
            sizes = sorted(scores)
            if output.statistic == "best":
                _line(axes, sizes, [min(scores[size]) for size in sizes], label, index)
                continue
            means, deviations = zip(*(spread(scores[size]) for size in sizes), strict=True)
            _line(axes, sizes, means, label, index)
            if output.statistic == "deviation":
                _band(axes, sizes, np.array(means), np.array(deviations), index)
        axes.set_title(language, fontsize=10)
        axes.set_ylabel("difference (nats)")
        axes.set_xticks(experiment.alphabet_sizes)
    grid[-1][0].set_xlabel("alphabet size k")
    _legend(figure, [axes for row in grid for axes in row], labels)
    return figure


def draw_scatter(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """SG score against test perplexity, a point for each run (figure 7.2)."""
    figure, axes = new_axes(5.4, 4.0)
    for index, label in enumerate(experiment.shown_models(output)):
        mine = [one for one in runs if one.trial.label == label and one.text.get("sg_score") is not None]
        points = [(one.text.get("test_perplexity", perplexity(one)), one.text["sg_score"]) for one in mine]
        if points:
            color = line_style(index)["color"]
            axes.scatter(*zip(*points, strict=True), label=label, color=color, marker="ox^s"[index % 4])
    axes.set(xlabel="test perplexity", ylabel="SG score")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    return figure


def _line(axes: Axes, x: Any, y: Any, label: str, index: int) -> None:
    marker = "o" if len(y) < 8 else None
    axes.plot(x, y, label=label, marker=marker, markersize=3.5, linewidth=1.4, **line_style(index))


def _band(axes: Axes, x: Any, mean: Any, deviation: Any, index: int) -> None:
    color = line_style(index)["color"]
    axes.fill_between(x, mean - deviation, mean + deviation, color=color, alpha=BAND, linewidth=0)


def _mark_training_lengths(axes: Axes, experiment: Experiment) -> None:
    """A line after the longest training strings, and one at 0."""
    longest = experiment.settings.get("data", {}).get("lengths", (40, 80))[1]
    axes.axvline(longest + 0.5, color="#888888", linewidth=0.8, linestyle=":")
    axes.axhline(0, color="#888888", linewidth=0.8)


def _legend(figure: Figure, panels: Sequence[Axes], labels: Sequence[str]) -> None:
    """One for all panels, above them, in the order of the models."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names = [label for label in labels if label in handles]
    if names:
        columns = max(1, int(figure.get_figwidth() / (0.6 + 0.085 * max(map(len, names)))))
        shown = [handles[name] for name in names]
        figure.legend(shown, names, loc="outside upper center", ncols=min(columns, len(names)), frameon=False)
