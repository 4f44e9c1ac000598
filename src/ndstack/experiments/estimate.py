"""Estimates of the remaining time of a sweep, and of the time of an experiment at full scale."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ndstack.experiments.experiment import Rules
from ndstack.experiments.groups import Spent, ended
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial
from ndstack.training import DataConfig, ModelOptions

Pair = tuple[str, str]
"""The name of a model and a language, with the lengths of stages before the last."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """The mean time of trials of one model on one language."""

    seconds_per_epoch: float
    epochs: float
    """The mean number of epochs of complete trials; 0 if there are none."""


def pair(trial: Trial) -> Pair:
    """Return what determines how long a trial takes."""
    stages = ",".join("{}:{}".format(*stage.lengths) for stage in trial.config.training.stages)
    return str(trial.config.model), f"{trial.language} after {stages}" if stages else trial.language


def measure_paces(folder: SweepFolder, trials: Iterable[Trial]) -> dict[Pair, Pace]:
    """Return the pace of every model on every language with a complete epoch."""
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
        seconds.setdefault(pair(trial), []).extend(times.get(int(line["epoch"]), 0.0) for line in history)
        if folder.status(trial) == "done":
            epochs.setdefault(pair(trial), []).append(len(history))
    return {
        key: Pace(statistics.fmean(values), statistics.fmean(epochs[key]) if key in epochs else 0.0)
        for key, values in seconds.items()
    }


def expect(paces: Mapping[Pair, Pace], trial: Trial, *, all_epochs: bool = False) -> tuple[int, float] | None:
    """Return the expected epochs and seconds of a trial; None if nothing is known.

    The estimate is the mean over trials of the same model and language, or else of the same model, or else
    over all trials.
    """
    model, language = pair(trial)
    found = (
        [pace for key, pace in paces.items() if key == (model, language)]
        or [pace for key, pace in paces.items() if key[0] == model]
        or list(paces.values())
    )
    if not found:
        return None
    most = trial.config.training.most_epochs
    epochs = [most if all_epochs else min(most, pace.epochs or most) for pace in found]
    seconds = [pace.seconds_per_epoch * count for pace, count in zip(found, epochs, strict=True)]
    return round(statistics.fmean(epochs)), statistics.fmean(seconds)


def expect_group(rules: Rules, so_far: Spent, trials: Sequence[tuple[int, float]]) -> float:
    """Return the expected seconds of the trials of a group that have not started.

    With a budget, trials start until it is spent. With `until`, the probability of success is estimated from
    earlier runs: (s + 1) / (n + 2) after s successes in n runs.

    Args:
        rules: the rules of the group.
        so_far: what its runs have spent.
        trials: the expected epochs and seconds of each trial, in order.
    """
    if ended(rules, so_far) is not None:
        return 0.0
    chance = 1 / (so_far.complete + 2) if rules.until is not None else 0.0  # there was no success so far
    epochs, seconds, reached, total = so_far.epochs, so_far.seconds, 1.0, 0.0
    for more_epochs, more_seconds in trials:
        if ended(Rules(budget=rules.budget), Spent(epochs=epochs, seconds=seconds)) is not None:
            break
        total += reached * more_seconds
        epochs, seconds, reached = epochs + more_epochs, seconds + more_seconds, reached * (1 - chance)
    return total


@dataclasses.dataclass(frozen=True)
class FullScale:
    """The seconds of one core that an experiment would take at full scale."""

    likely: float | None
    """The time with as many epochs as complete trials here had; None if their epoch limit was lower."""
    most: float
    """The time with all epochs up to the limit."""
    pairs: int
    """The number of pairs of model and language that were measured."""
    elsewhere: float | None
    """The time with the given seconds per epoch, and the epochs of `likely`, or else of `most`."""


def full_scale(
    folder: SweepFolder, measured: Sequence[Trial], full: Sequence[Trial], given: Mapping[str, float]
) -> FullScale | None:
    """Return an estimate for full scale; None unless every kind of model was measured on the full data.

    Args:
        folder: the folder of the sweep.
        measured: the trials that may have run.
        full: all trials at full scale.
        given: the seconds per epoch elsewhere, by label.
    """
    sizes = {_size(trial) for trial in full}
    alike = [trial for trial in measured if _size(trial) in sizes]
    paces = measure_paces(folder, alike)
    if not {_kind(trial) for trial in full} <= {name.rstrip("0123456789-") for name, _ in paces}:
        return None
    limits = [[trial.config.training.most_epochs for trial in some] for some in (alike, full)]
    cut = min(limits[0]) < max(limits[1])
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
    """Return what determines how long an epoch takes, besides the model."""
    return trial.language, trial.config.data, trial.config.options


def _kind(trial: Trial) -> str:
    """Return the name of a model without sizes."""
    return str(trial.config.model).rstrip("0123456789-")


def show_seconds(seconds: float) -> str:
    """Return a time as 45 s, 12.0 min, 3.5 h or 2.1 days."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
