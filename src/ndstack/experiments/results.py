"""What figures and tables show: runs as rows, from sweep folders or tables, and how they are selected."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from ndstack.experiments.experiment import Extend, Selection
from ndstack.experiments.gathering import read_run
from ndstack.experiments.jobs import Measure
from ndstack.experiments.records import Epoch, Record
from ndstack.experiments.stack_views import Floats, View, ViewName, measure_view
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Setting, Trial
from ndstack.training import Run


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run of an experiment that has ended."""

    record: Record
    curve: tuple[Epoch, ...]
    label: str
    """Of the model in figures and tables."""
    setting: Setting
    """What restarts have in common."""
    restart: int
    run: Run | None = None
    """Its folder, where there is one."""
    views: Mapping[ViewName, View] = dataclasses.field(default_factory=dict)
    """Of its stack, where they were kept; where they were not, they are measured in the run's folder."""

    @property
    def language(self) -> str:
        """With an alphabet size, if it has one."""
        return self.record.language

    @property
    def alphabet_size(self) -> int:
        """k of `dyck(k=40)`; 2 if none is given."""
        return int(self.language.partition("k=")[2].removesuffix(")") or 2)

    @property
    def score(self) -> float:
        """What runs are selected by, lower is better: the best validation cross-entropy (difference)."""
        return self.record.score

    @property
    def differences(self) -> list[float]:
        """The validation difference after each epoch of the last stage."""
        last = self.curve[-1].stage
        return [one.difference or 0.0 for one in self.curve if one.stage == last]

    def has(self, name: ViewName) -> bool:
        """Whether there is such a view of its stack."""
        return name in self.views or self.run is not None

    def view(self, name: ViewName) -> View:
        """What its stack does."""
        if name not in self.views and self.run is not None:
            return measure_view(self.run, name)
        return self.views[name]

    @property
    def test(self) -> dict[int, float]:
        """The cross-entropy difference on the test set, by length."""
        return self.record.test_by_length


def finished(
    folder: SweepFolder,
    trials: Sequence[Trial],
    measures: tuple[Measure, ...] = (),
    extend: Extend | None = None,
) -> list[Finished]:
    """Those of the trials that are complete, with all that is to be measured."""
    found = []
    for trial in trials:
        own = {"id": trial.id, "label": trial.label}
        place, tables = (trial.label, trial.setting, trial.restart), folder.known.tables
        if (known := folder.record(trial, measures, extend)) is not None:
            curve, views = tables.curves[known.id], tables.views.get(known.id, {})
            found.append(Finished(known.model_copy(update=own), curve, *place, views=views))
        elif folder.status(trial, measures) == "done":
            run = Run.open(folder.trial(trial))
            run.check(complete=True)
            record, epochs = read_run(run)
            found.append(Finished(record.model_copy(update=own), tuple(epochs), *place, run))
    return found


def select(runs: Sequence[Finished], rule: Selection) -> list[Finished]:
    """The runs that stand for a model on a language."""
    if rule == "all" or not runs:
        return list(runs)
    if rule == "best":
        return [min(runs, key=lambda one: one.score)]
    settings: dict[Setting, list[Finished]] = {}
    for one in runs:
        settings.setdefault(one.setting, []).append(one)
    return min(settings.values(), key=lambda group: statistics.fmean(one.score for one in group))


def mean_curve(runs: Sequence[Finished]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the validation difference after each epoch (figure 5.3).

    After a run has converged, the value of its last epoch counts for later epochs.
    """
    curves = [[epoch.difference or 0.0 for epoch in one.curve] for one in runs]
    longest = max(map(len, curves))
    table = np.array([[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves])
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
    value = one.record.perplexity
    return math.exp(one.record.cross_entropy or 0.0) if value is None else value
