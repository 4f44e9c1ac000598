"""How long: what is left of a sweep, and what an experiment would take at full scale on this machine."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ndstack.experiments.experiment import Rules
from ndstack.experiments.groups import Spent, ended
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial
from ndstack.training import DataConfig, ModelOptions

Pair = tuple[str, str]
"""A model's name and a language, with the lengths of stages before the last."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """What trials of one model on one language took."""

    seconds_per_epoch: float
    epochs: float
    """The mean of the complete trials; of none if there are none."""


def pair(trial: Trial) -> Pair:
    """What decides how long a trial takes."""
    stages = ",".join("{}:{}".format(*stage.lengths) for stage in trial.config.training.stages)
    return str(trial.config.model), f"{trial.language} after {stages}" if stages else trial.language


def measure_paces(folder: SweepFolder, trials: Iterable[Trial]) -> dict[Pair, Pace]:
    """The pace of every model on every language that has finished an epoch."""
    seconds: dict[Pair, list[float]] = {}
    epochs: dict[Pair, list[int]] = {}
    for trial in trials:
        if (known := folder.known.find(trial, (), None)) is not None:
            seconds.setdefault(pair(trial), []).append(known.seconds / known.epochs)
            epochs.setdefault(pair(trial), []).append(known.epochs)
            continue
        run = folder.run(trial)
        history = [] if run is None else run.metrics()
        if run is None or not history:
            continue
        times = run.seconds()
        seconds.setdefault(pair(trial), []).extend(times.get(line["epoch"], 0.0) for line in history)
        if folder.status(trial) == "done":
            epochs.setdefault(pair(trial), []).append(len(history))
    return {
        key: Pace(statistics.fmean(values), statistics.fmean(epochs[key]) if key in epochs else 0.0)
        for key, values in seconds.items()
    }


def expect(paces: Mapping[Pair, Pace], trial: Trial, *, all_epochs: bool = False) -> tuple[int, float] | None:
    """The epochs and the seconds of a trial, by those most like it; None if nothing is known."""
    model, language = pair(trial)
    alike = [
        [pace for key, pace in paces.items() if key == (model, language)],
        [pace for key, pace in paces.items() if key[0] == model],
        list(paces.values()),
    ]
    for found in alike:
        if found:
            most = trial.config.training.most_epochs
            epochs = [most if all_epochs else min(most, pace.epochs or most) for pace in found]
            seconds = [pace.seconds_per_epoch * count for pace, count in zip(found, epochs, strict=True)]
            return round(statistics.fmean(epochs)), statistics.fmean(seconds)
    return None


def expect_group(rules: Rules, so_far: Spent, trials: Sequence[tuple[int, float]]) -> float:
    """The seconds that the trials of a group are likely to take which have not begun.

    With a budget, trials begin until it is spent. With `until`, each trial is taken to succeed with the
    chance that the runs so far suggest: with s successes in n runs, (s + 1) / (n + 2).

    Args:
        rules: of the group.
        so_far: what its runs have spent.
        trials: the epochs and the seconds expected of each, in order.
    """
    if ended(rules, so_far) is not None:
        return 0.0
    chance = 1 / (so_far.complete + 2) if rules.until is not None else 0.0  # none has succeeded so far
    epochs, seconds, reached, total = so_far.epochs, so_far.seconds, 1.0, 0.0
    for more_epochs, more_seconds in trials:
        if ended(Rules(budget=rules.budget), Spent(epochs=epochs, seconds=seconds)) is not None:
            break
        total += reached * more_seconds
        epochs, seconds, reached = epochs + more_epochs, seconds + more_seconds, reached * (1 - chance)
    return total


@dataclasses.dataclass(frozen=True)
class FullScale:
    """Core seconds that an experiment would take at full scale."""

    likely: float | None
    """With as many epochs as complete trials here took; None if they were not allowed as many."""
    most: float
    """With all epochs that are allowed."""
    pairs: int
    """How many pairs of model and language were measured."""
    elsewhere: float | None
    """With the given seconds per epoch, and the epochs of `likely`, or else of `most`."""


def full_scale(
    folder: SweepFolder, measured: Sequence[Trial], full: Sequence[Trial], given: Mapping[str, float]
) -> FullScale | None:
    """What full scale would take, if every kind of model that it has was measured on the full data.

    Args:
        folder: of the trials.
        measured: those that may have run.
        full: all trials at full scale.
        given: seconds per epoch elsewhere, by label.
    """
    sizes = {_size(trial) for trial in full}
    alike = [trial for trial in measured if _size(trial) in sizes]
    paces = measure_paces(folder, alike)
    if not {_kind(trial) for trial in full} <= {name.rstrip("0123456789-") for name, _ in paces}:
        return None
    cut = min(map(_most, alike)) < max(map(_most, full))
    likely = None if cut else _sum(expect(paces, trial) for trial in full)
    most = _sum(expect(paces, trial, all_epochs=True) for trial in full)
    elsewhere = None
    if {trial.label for trial in full} <= given.keys():
        there = {
            label: {key: dataclasses.replace(pace, seconds_per_epoch=seconds) for key, pace in paces.items()}
            for label, seconds in given.items()
        }
        elsewhere = _sum(expect(there[trial.label], trial, all_epochs=cut) for trial in full)
    return FullScale(likely, most, len(paces), elsewhere)


def _sum(expected: Iterable[tuple[int, float] | None]) -> float:
    return sum(one[1] for one in expected if one is not None)


def _size(trial: Trial) -> tuple[str, DataConfig, ModelOptions]:
    """What, besides the model, decides how long an epoch takes."""
    return trial.language, trial.config.data, trial.config.options


def _most(trial: Trial) -> int:
    return trial.config.training.most_epochs


def _kind(trial: Trial) -> str:
    """A model's name without sizes."""
    return str(trial.config.model).rstrip("0123456789-")


def show_seconds(seconds: float) -> str:
    """45 s, 12 min, 3.5 h, 2.1 days."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
