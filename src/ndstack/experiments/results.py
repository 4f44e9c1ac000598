"""From trials to what figures and tables show: read them, and select by the dissertation's rules."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.folder import SweepFolder
from ndstack.experiments.spec import Selection
from ndstack.experiments.trials import Trial
from ndstack.experiments.work import RESULT, TEST, TEXT, Measure
from ndstack.training import Run
from ndstack.training.run import best_epoch

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Finished:
    """A complete trial."""

    trial: Trial
    run: Run

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The metrics of every epoch."""
        return self.run.metrics()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """One row: best epoch, parameters, time."""
        return self.run.summary()

    @cached_property
    def best(self) -> dict[str, Any]:
        """The metrics of the best epoch."""
        return best_epoch(self.history)

    @property
    def score(self) -> float:
        """What runs are selected by, lower is better: the best validation cross-entropy (difference)."""
        return float(self.best.get("validation_difference", self.best["validation_cross_entropy"]))

    @cached_property
    def test(self) -> dict[int, float]:
        """The cross-entropy difference on the test set, by length."""
        path = self.run.folder / TEST
        found = files.read_json(path)
        try:
            return {int(row["length"]): float(row["difference"]) for row in found["by_length"]}
        except (KeyError, TypeError, ValueError):
            raise NdstackError(
                f"{path} is damaged: expected what ndstack evaluate writes; remove it, and the sweep writes "
                "it again"
            ) from None

    @cached_property
    def text(self) -> dict[str, Any]:
        """What was measured on text."""
        found = files.read_json(self.run.folder / TEXT)
        return found if isinstance(found, dict) else {}

    @cached_property
    def updates(self) -> int | None:
        """How often the parameters were updated; None for a run that was completed before it was counted."""
        found = files.read_json(self.run.folder / RESULT)
        return found.get("updates") if isinstance(found, dict) else None

    @cached_property
    def seconds(self) -> dict[int, float]:
        """Of every epoch."""
        return self.run.seconds()


def finished(
    folder: SweepFolder, trials: Sequence[Trial], measures: tuple[Measure, ...] = ()
) -> list[Finished]:
    """Those of the trials that are complete, with all that is to be measured."""
    found = []
    for trial in trials:
        if folder.status(trial, measures) == "done":
            run = Run.open(folder.trial(trial))
            run.check(complete=True)
            found.append(Finished(trial, run))
    return found


def select(runs: Sequence[Finished], rule: Selection) -> list[Finished]:
    """The runs that stand for a model on a language."""
    if rule == "all" or not runs:
        return list(runs)
    if rule == "best":
        return [min(runs, key=lambda one: one.score)]
    settings: dict[Any, list[Finished]] = {}
    for one in runs:
        settings.setdefault(one.trial.setting, []).append(one)
    return min(settings.values(), key=lambda group: statistics.fmean(one.score for one in group))


def mean_curve(runs: Sequence[Finished]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the validation difference after each epoch (figure 5.3).

    After a run has converged, the value of its last epoch counts for later epochs.
    """
    longest = max(len(one.history) for one in runs)
    table = np.array(
        [
            [
                one.history[min(epoch, len(one.history) - 1)]["validation_difference"]
                for epoch in range(longest)
            ]
            for one in runs
        ]
    )
    return table.mean(axis=0), table.std(axis=0)


def mean_by_length(runs: Sequence[Finished]) -> tuple[list[int], Floats, Floats]:
    """Lengths, mean and standard deviation of the test difference."""
    lengths = sorted(set.intersection(*({*one.test} for one in runs)))
    table = np.array([[one.test[length] for length in lengths] for one in runs])
    return lengths, table.mean(axis=0), table.std(axis=0)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation."""
    return statistics.fmean(values), statistics.pstdev(values)


def perplexity(one: Finished) -> float:
    """Of the best epoch on the validation text."""
    value = one.best.get("validation_perplexity")
    return math.exp(one.best["validation_cross_entropy"]) if value is None else float(value)
