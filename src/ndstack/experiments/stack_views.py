"""Views of what stacks do in trained networks, which figures 6.2, 9.4 and 9.5 show, and numbers about them.

A view is plain data that is measured with the parameters of a network. It is kept beside the tables of
results, so that the figures can be drawn without the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndstack.analysis.figures import Evolution, readings_by_next_symbol
from ndstack.analysis.figures.pca import components
from ndstack.analysis.trace import trace
from ndstack.errors import NdstackError
from ndstack.languages import Language
from ndstack.training import Run
from ndstack.training.material import language_of
from ndstack.training.run import BEST

ViewName = Literal["evolution", "readings", "heat_map"]
View = dict[str, Any]
Floats = NDArray[np.float64]

MARKER = "#"
SAMPLES = 100
"""Strings whose readings figure 9.4 shows."""
PATTERN = 4
"""Figure 9.5 repeats so many symbols."""
ENOUGH_SNAPSHOTS = 10
LEARNED = 0.5
"""A position's action is learned in the first epoch in which the correct type has so much of the weight."""
DIGITS = 3


def possible_views(run: Run) -> list[ViewName]:
    """The views that the parameters of a run allow: those of the runs behind the three figures."""
    model, language = run.config.model or "", run.config.language
    if run.config.corpus is not None or not model.startswith(("ns", "rns")):
        return []
    if language.partition("(")[0] != "marked-reversal":
        return []
    found: list[ViewName] = ["evolution"] if len(run.snapshots()) >= ENOUGH_SNAPSHOTS else []
    if "k=40" in language and (run.folder / BEST).exists():
        found += ["readings", "heat_map"]
    return found


def views_of(run: Run) -> dict[ViewName, View]:
    """All views that the parameters of a run allow."""
    return {name: measure_view(run, name) for name in possible_views(run)}


def summarize(views: dict[ViewName, View]) -> dict[str, float]:
    """The numbers that claims about views are decided by; see each of the functions."""
    found: dict[str, float] = {}
    if "evolution" in views:
        found |= measure_onsets(views["evolution"])
    if "readings" in views:
        found["purity"] = views["readings"]["purity"]
    if "heat_map" in views:
        found["pattern_ratio"] = measure_pattern(views["heat_map"])
    return found


def view_evolution(run: Run) -> View:
    """The share of the correct action type at each position of one string, after each epoch."""
    language = language_of(run.config)
    lengths = language.lengths(*run.config.data.lengths)
    word = language.sample(lengths[len(lengths) // 2], np.random.default_rng(0))
    evolution = Evolution.of_run(run, word)
    return {"epochs": list(evolution.epochs), "values": _plain(correct_shares(evolution))}


def measure_onsets(view: View) -> dict[str, float]:
    """When the correct action is learned, by position; the marker's own position does not count.

    `onset_spread`: epochs between the first tenth of the positions and the last. `onset_outward`: correlation
    of the onset with the distance from the middle, 0 if all positions are learned at once.
    """
    values = np.array(view["values"])
    epochs = np.array(view["epochs"])
    right = values >= LEARNED
    onset = np.where(right.any(axis=0), epochs[right.argmax(axis=0)], epochs[-1] + 1).astype(float)
    distance = np.abs(np.arange(values.shape[1]) - values.shape[1] // 2).astype(float)
    onset, distance = onset[distance > 0], distance[distance > 0]
    spread = float(np.quantile(onset, 0.9) - np.quantile(onset, 0.1))
    outward = float(np.corrcoef(distance, onset)[0, 1]) if onset.std() > 0 else 0.0
    return {"onset_spread": spread, "onset_outward": outward}


def view_readings(run: Run) -> View:
    """Principal components of the readings before each symbol of the second half, and how pure clusters are.

    `purity` is the share of readings that are nearest to the mean of those of their own symbol.
    """
    language, config = language_of(run.config), run.config
    rng = np.random.default_rng(0)
    lengths = language.lengths(*config.data.lengths)
    words = [language.sample(int(rng.choice(lengths)), rng) for _ in range(SAMPLES)]
    readings, labels = readings_by_next_symbol(run.load(), words, after=MARKER)
    points, variance = components(np.asarray(readings, np.float64))
    return {
        "points": _plain(points),
        "variance": _plain(variance),
        "labels": labels,
        "purity": measure_purity(readings, labels),
    }


def measure_purity(readings: Floats, labels: Sequence[str]) -> float:
    """The share of readings that are nearest to the mean of those of their own symbol."""
    kinds = sorted(set(labels))
    own = np.array([kinds.index(label) for label in labels])
    means = np.stack([readings[own == number].mean(axis=0) for number in range(len(kinds))])
    distances = np.linalg.norm(readings[:, None] - means[None], axis=2)
    return float((distances.argmin(axis=1) == own).mean())


def view_heat_map(run: Run) -> View:
    """Readings over time on a string whose first half repeats the pattern 0123."""
    word = pattern(language_of(run.config), run.config.data.lengths)
    stack = trace(run.load(), word).stack()
    return {"word": list(word), "names": list(stack.reading_names), "values": _plain(stack.readings)}


def measure_pattern(view: View) -> float:
    """How near readings before equal symbols of the second half are, as a share of how near any two are."""
    word, values = view["word"], np.array(view["values"])
    first = word.index(MARKER) + 1
    rows, symbols = values[first - 1 : len(word) - 1], np.array(word[first:])
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    upper = np.triu(np.ones(distances.shape, bool), 1)
    same = (symbols[:, None] == symbols[None]) & upper
    total = float(distances[upper].mean()) if same.any() else 0.0
    return float(distances[same].mean()) / total if total > 0 else 1.0


def correct_shares(evolution: Evolution) -> Floats:
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


def pattern(language: Language, lengths: tuple[int, int]) -> tuple[str, ...]:
    """A string of marked reversal whose first half repeats the first symbols of the alphabet."""
    symbols = [symbol for symbol in language.alphabet if symbol != MARKER][:PATTERN]
    if MARKER not in language.alphabet:
        raise NdstackError(f"{language.name} has no symbol {MARKER}; the figure is about marked reversal")
    half = language.lengths(*lengths)[-1] // 2
    first = [symbols[place % len(symbols)] for place in range(half)]
    return (*first, MARKER, *reversed(first))


def measure_view(run: Run, name: ViewName) -> View:
    """One view of a run."""
    makers = {"evolution": view_evolution, "readings": view_readings, "heat_map": view_heat_map}
    return makers[name](run)


def _plain(values: ArrayLike) -> Any:
    return np.round(np.asarray(values, np.float64), DIGITS).tolist()
