"""What stacks do inside trained models (figures 6.2, 9.4, 9.5); traces come from `ndstack.analysis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ndstack.analysis.figures import Evolution, draw_pca, readings_by_next_symbol
from ndstack.analysis.figures.picture import heat_map
from ndstack.analysis.trace import trace
from ndstack.errors import NdstackError
from ndstack.experiments.results import Finished
from ndstack.experiments.spec import Experiment, Output
from ndstack.languages import Language
from ndstack.plotting import new_axes, new_grid
from ndstack.training.material import find_language

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKER = "#"
GREYS = "Greys"
"""Black is 1, white is 0, as in the dissertation."""
SAMPLES = 100
"""Strings whose readings figure 9.4 shows."""
PATTERN = 4
"""Figure 9.5 repeats so many symbols."""
SHOWN = 3
"""Runs in figure 9.5."""


def draw_evolution(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """The share of the correct action type at each position, after each epoch (figure 6.2)."""
    labels = experiment.shown_models(output)
    chosen = {label: [one for one in runs if one.trial.label == label] for label in labels}
    panels = {label: min(found, key=lambda one: one.score) for label, found in chosen.items() if found}
    if not panels:
        return _nothing(output)
    figure, grid = new_grid(1, len(panels), 4.0 * len(panels), 3.0)
    for (label, one), axes in zip(panels.items(), grid[0], strict=True):
        language = find_language(one.run.config)
        lengths = language.lengths(*one.run.config.data.lengths)
        word = language.sample(lengths[len(lengths) // 2], np.random.default_rng(0))
        evolution = Evolution.of_run(one.run, word)
        values = correct_shares(evolution)
        heat_map(axes, values, colors=GREYS)
        axes.set(title=label, xlabel="position", ylabel="epoch")
        axes.set_yticks([0, len(values) - 1], [str(evolution.epochs[0]), str(evolution.epochs[-1])])
    return figure


def correct_shares(evolution: Evolution) -> Any:
    """[epochs, n]: the share of push before the middle of w#w^R, of replace at it, of pop after it."""
    if MARKER not in evolution.inputs or "replace" not in evolution.action_names:
        raise NdstackError("the figure is about nondeterministic stacks on marked reversal; name these alone")
    middle = evolution.inputs.index(MARKER)
    order = [evolution.action_names.index(name) for name in ("push", "replace", "pop")]
    right = [
        order[0] if t < middle else order[1] if t == middle else order[2]
        for t in range(len(evolution.inputs))
    ]
    return np.stack([evolution.actions[:, t, action] for t, action in enumerate(right)], axis=1)


def draw_readings(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Principal components of the readings before each symbol of the second half (figure 9.4)."""
    if not runs:
        return _nothing(output)
    best = min(runs, key=lambda one: one.score)
    language, config = find_language(best.run.config), best.run.config
    rng = np.random.default_rng(0)
    lengths = language.lengths(*config.data.lengths)
    words = [language.sample(int(rng.choice(lengths)), rng) for _ in range(SAMPLES)]
    readings, labels = readings_by_next_symbol(best.run.load(), words, after=MARKER)
    return draw_pca(readings, labels, title=f"{best.trial.config.model} on {best.trial.language}").figure


def draw_heatmaps(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Figure:
    """Readings over time, from top to bottom, of the best run and others (figure 9.5)."""
    if not runs:
        return _nothing(output)
    chosen = sorted(runs, key=lambda one: one.score)[:SHOWN]
    word = pattern(find_language(chosen[0].run.config), chosen[0].run.config.data.lengths)
    figure, grid = new_grid(1, len(chosen), 1.9 * len(chosen) + 0.4, 1.2 + 0.13 * len(word))
    for number, (one, axes) in enumerate(zip(chosen, grid[0], strict=True)):
        stack = trace(one.run.load(), word).stack()
        heat_map(axes, stack.readings, colors=GREYS)
        axes.set_xticks(range(len(stack.reading_names)), stack.reading_names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(word)), word if number == 0 else [""] * len(word), fontsize=7)
        axes.set_title("best" if number == 0 else f"restart {one.trial.restart}", fontsize=9)
    return figure


def pattern(language: Language, lengths: tuple[int, int]) -> tuple[str, ...]:
    """A string of marked reversal whose first half repeats the first symbols of the alphabet."""
    symbols = [symbol for symbol in language.alphabet if symbol != MARKER][:PATTERN]
    if MARKER not in language.alphabet:
        raise NdstackError(f"{language.name} has no symbol {MARKER}; the figure is about marked reversal")
    half = language.lengths(*lengths)[-1] // 2
    first = [symbols[place % len(symbols)] for place in range(half)]
    return (*first, MARKER, *reversed(first))


def _nothing(output: Output) -> Figure:
    figure, axes = new_axes(4, 1)
    axes.text(0.5, 0.5, f"{output.label}: no trial is complete", ha="center", va="center")
    axes.set_axis_off()
    return figure
