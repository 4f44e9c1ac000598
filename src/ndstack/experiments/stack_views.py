"""Views of what stacks do in trained networks, which figures 6.2, 9.4 and 9.5 show, and numbers about them.

A view is plain data that is computed with the parameters of a network. It is kept beside the tables of
results, so that the figures can be drawn without the parameters.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndstack.analysis.figures import Evolution, readings_by_next_symbol
from ndstack.analysis.figures.pca import components
from ndstack.analysis.trace import trace
from ndstack.errors import NdstackError
from ndstack.experiments.records import EvolutionView, HeatMapView, Matrix, ReadingsView, ViewName, Views
from ndstack.languages import Language
from ndstack.training import Run
from ndstack.training.material import language_of
from ndstack.training.run import BEST

Floats = NDArray[np.float64]

MARKER = "#"
SAMPLES = 100
"""The number of strings whose readings figure 9.4 shows."""
PATTERN = 4
"""The number of symbols that figure 9.5 repeats."""
ENOUGH_SNAPSHOTS = 10
LEARNED = 0.5
"""The action at a position is learned in the first epoch in which the correct type has this share."""
DIGITS = 3


def possible_views(run: Run) -> list[ViewName]:
    """Return the views that can be computed for a run; only the runs behind the three figures have any."""
    model, language = run.config.model or "", run.config.language
    if run.config.corpus is not None or not model.startswith(("ns", "rns")):
        return []
    if language.partition("(")[0] != "marked-reversal":
        return []
    found: list[ViewName] = ["evolution"] if len(run.snapshots()) >= ENOUGH_SNAPSHOTS else []
    if "k=40" in language and (run.folder / BEST).exists():
        found += ["readings", "heat_map"]
    return found


def views_of(run: Run) -> Views:
    """Return all views that can be computed for a run."""
    names = possible_views(run)
    return Views(
        evolution=view_evolution(run) if "evolution" in names else None,
        readings=view_readings(run) if "readings" in names else None,
        heat_map=view_heat_map(run) if "heat_map" in names else None,
    )


def summarize(views: Views) -> dict[str, float]:
    """Return the numbers by which claims about views are decided; see each of the functions."""
    found: dict[str, float] = {}
    if views.evolution is not None:
        found |= measure_onsets(views.evolution)
    if views.readings is not None:
        found["purity"] = views.readings.purity
    if views.heat_map is not None:
        found["pattern_ratio"] = measure_pattern(views.heat_map)
    return found


def view_evolution(run: Run) -> EvolutionView:
    """Return the share of the correct action type at each position of one string, after each epoch."""
    language = language_of(run.config)
    lengths = language.lengths(*run.config.data.lengths)
    word = language.sample(lengths[len(lengths) // 2], np.random.default_rng(0))
    evolution = Evolution.of_run(run, word)
    return EvolutionView(epochs=list(evolution.epochs), values=_matrix(correct_shares(evolution)))


def measure_onsets(view: EvolutionView) -> dict[str, float]:
    """Return numbers about the epochs in which the correct action is learned at each position but the marker.

    `onset_spread` is the number of epochs between the first tenth of the positions and the last tenth.
    `onset_outward` is the correlation of the epoch with the distance from the middle; 0 if all positions are
    learned at the same time.
    """
    values = np.array(view.values)
    epochs = np.array(view.epochs)
    right = values >= LEARNED
    onset = np.where(right.any(axis=0), epochs[right.argmax(axis=0)], epochs[-1] + 1).astype(float)
    distance = np.abs(np.arange(values.shape[1]) - values.shape[1] // 2).astype(float)
    onset, distance = onset[distance > 0], distance[distance > 0]
    spread = float(np.quantile(onset, 0.9) - np.quantile(onset, 0.1))
    outward = float(np.corrcoef(distance, onset)[0, 1]) if onset.std() > 0 else 0.0
    return {"onset_spread": spread, "onset_outward": outward}


def view_readings(run: Run) -> ReadingsView:
    """Return the principal components of the readings before each symbol of the second half of strings."""
    language, rng = language_of(run.config), np.random.default_rng(0)
    lengths = language.lengths(*run.config.data.lengths)
    words = [language.sample(int(rng.choice(lengths)), rng) for _ in range(SAMPLES)]
    readings, labels = readings_by_next_symbol(run.load(), words, after=MARKER)
    points, variance = components(np.asarray(readings, np.float64))
    purity, (shares,) = measure_purity(readings, labels), _matrix([variance])
    return ReadingsView(points=_matrix(points), variance=shares, labels=labels, purity=purity)


def measure_purity(readings: Floats, labels: Sequence[str]) -> float:
    """Return the share of readings that are closest to the mean of those of their own symbol."""
    kinds = sorted(set(labels))
    own = np.array([kinds.index(label) for label in labels])
    means = np.stack([readings[own == number].mean(axis=0) for number in range(len(kinds))])
    distances = np.linalg.norm(readings[:, None] - means[None], axis=2)
    return float((distances.argmin(axis=1) == own).mean())


def view_heat_map(run: Run) -> HeatMapView:
    """Return the readings over time on a string whose first half repeats the pattern 0123."""
    word = pattern(language_of(run.config), run.config.data.lengths)
    stack = trace(run.load(), word).stack()
    return HeatMapView(word=list(word), names=list(stack.reading_names), values=_matrix(stack.readings))


def measure_pattern(view: HeatMapView) -> float:
    """Return the mean distance of readings before equal symbols of the second half, relative to all pairs."""
    word, values = view.word, np.array(view.values)
    first = word.index(MARKER) + 1
    rows, symbols = values[first - 1 : len(word) - 1], np.array(word[first:])
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    upper = np.triu(np.ones(distances.shape, bool), 1)
    same = (symbols[:, None] == symbols[None]) & upper
    total = float(distances[upper].mean()) if same.any() else 0.0
    return float(distances[same].mean()) / total if total > 0 else 1.0


def correct_shares(evolution: Evolution) -> Floats:
    """Return the share of push before the middle of w#w^R, of replace at it, of pop after it, [epochs, n]."""
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
    """Return a string of marked reversal whose first half repeats the first symbols of the alphabet."""
    symbols = [symbol for symbol in language.alphabet if symbol != MARKER][:PATTERN]
    if MARKER not in language.alphabet:
        raise NdstackError(f"{language.name} has no symbol {MARKER}; the figure is about marked reversal")
    half = language.lengths(*lengths)[-1] // 2
    first = [symbols[place % len(symbols)] for place in range(half)]
    return (*first, MARKER, *reversed(first))


def _matrix(values: ArrayLike) -> Matrix:
    found: Matrix = np.round(np.asarray(values, np.float64), DIGITS).tolist()
    return found
