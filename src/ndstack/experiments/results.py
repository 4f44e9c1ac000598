"""The complete runs of an experiment, from sweep folders or tables, and how figures select among them."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from ndstack.experiments.experiment import Extend, Selection
from ndstack.experiments.gathering import read_run
from ndstack.experiments.jobs import Measure
from ndstack.experiments.records import (
    Epoch,
    EvolutionView,
    HeatMapView,
    ReadingsView,
    Record,
    ViewName,
    Views,
)
from ndstack.experiments.stack_views import Floats, view_evolution, view_heat_map, view_readings
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Setting, Trial
from ndstack.grammars.graphs import grouped
from ndstack.training import Run


@dataclasses.dataclass(frozen=True)
class Finished:
    """A complete run of an experiment."""

    record: Record
    curve: tuple[Epoch, ...]
    label: str
    """The label of the model in figures and tables."""
    setting: Setting
    """What restarts have in common."""
    restart: int
    run: Run | None = None
    """The run itself, if its folder exists."""
    views: Views = Views()  # noqa: RUF009 (frozen)
    """The views of its stack that were kept; others are computed from the run."""

    @property
    def language(self) -> str:
        """The language, with its alphabet size if it has one."""
        return self.record.language

    @property
    def alphabet_size(self) -> int:
        """The number k of `dyck(k=40)`; 2 by default."""
        return int(self.language.partition("k=")[2].removesuffix(")") or 2)

    @property
    def score(self) -> float:
        """The best validation cross-entropy (difference), by which runs are selected; lower is better."""
        return self.record.score

    @property
    def differences(self) -> list[float]:
        """The validation difference after each epoch of the last stage."""
        last = self.curve[-1].stage
        return [one.difference or 0.0 for one in self.curve if one.stage == last]

    def has(self, name: ViewName) -> bool:
        """Return whether a view of its stack was kept or can be computed."""
        return getattr(self.views, name) is not None or self.run is not None

    def evolution(self) -> EvolutionView:
        """Return the actions of its stack during training."""
        return self.views.evolution or view_evolution(self._run())

    def readings(self) -> ReadingsView:
        """Return the principal components of the readings of its stack."""
        return self.views.readings or view_readings(self._run())

    def heat_map(self) -> HeatMapView:
        """Return the readings of its stack over time."""
        return self.views.heat_map or view_heat_map(self._run())

    def _run(self) -> Run:
        assert self.run is not None
        return self.run

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
    """Return the trials that are complete, with everything that has to be measured."""
    found = []
    for trial in trials:
        own = {"id": trial.id, "label": trial.label}
        place, tables = (trial.label, trial.setting, trial.restart), folder.known.tables
        if (known := folder.record(trial, measures, extend)) is not None:
            curve, views = tables.curves[known.id], tables.views.get(known.id, Views())
            found.append(Finished(known.model_copy(update=own), curve, *place, views=views))
        elif folder.status(trial, measures) == "done":
            run = Run.open(folder.trial(trial))
            run.check(complete=True)
            record, epochs = read_run(run)
            found.append(Finished(record.model_copy(update=own), tuple(epochs), *place, run))
    return found


def select(runs: Sequence[Finished], rule: Selection) -> list[Finished]:
    """Return the runs that represent a model on a language."""
    if rule == "all" or not runs:
        return list(runs)
    if rule == "best":
        return [min(runs, key=lambda one: one.score)]
    settings = grouped(runs, lambda one: one.setting).values()
    return min(settings, key=lambda group: statistics.fmean(one.score for one in group))


def mean_curve(runs: Sequence[Finished]) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of the validation difference after each epoch (figure 5.3).

    After the end of a run, the value of its last epoch counts for later epochs.
    """
    curves = [[epoch.difference or 0.0 for epoch in one.curve] for one in runs]
    longest = max(map(len, curves))
    table = np.array([[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves])
    return table.mean(axis=0), table.std(axis=0)


def mean_by_length(runs: Sequence[Finished]) -> tuple[list[int], Floats, Floats]:
    """Return the lengths of test strings, and the mean and standard deviation of the test difference."""
    lengths = sorted(set.intersection(*({*one.test} for one in runs)))
    table = np.array([[one.test[length] for length in lengths] for one in runs])
    return lengths, table.mean(axis=0), table.std(axis=0)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and standard deviation of some values."""
    return statistics.fmean(values), statistics.pstdev(values)


def perplexity(one: Finished) -> float:
    """Return the perplexity of the best epoch on the validation text."""
    value = one.record.perplexity
    return math.exp(one.record.cross_entropy or 0.0) if value is None else value
