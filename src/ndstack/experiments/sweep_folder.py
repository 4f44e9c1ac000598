"""The folder of a sweep, with the trials of one or more experiments.

| file | content |
|---|---|
| `experiments/NAME-SCALE.json` | a complete experiment |
| `trials/ID/` | a run folder for each trial |
| `trials/ID/result.json` | the result of a complete trial |
| `trials/ID/failed.json` | the error of a trial that failed because of its settings, and is not repeated |
| `known/` | tables of runs that were made elsewhere; those that are complete are not run here |
| `workers.log` | the error output of the processes of the local engine |
| `report/` | the report that `ndstack report` makes |
"""

import dataclasses
import json
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment, Extend
from ndstack.experiments.identity import describe_stages, match_key
from ndstack.experiments.jobs import FAILED, RESULT, Measure, is_done, more_epochs
from ndstack.experiments.records import CLAIMS, Record, Tables, is_tables
from ndstack.experiments.trials import Trial
from ndstack.settings.reading import Table, merge
from ndstack.training import Run
from ndstack.training.run import STATE, is_run

Status = Literal["done", "known", "failed", "begun", "waiting"]
"""The state of a trial. It is complete if it is done here, or known from tables of runs made elsewhere."""
COMPLETE: tuple[Status, ...] = ("done", "known")


@dataclasses.dataclass(frozen=True)
class Planned:
    """An experiment at a scale, as it was started in a folder."""

    experiment: Experiment
    """The experiment at its scale."""
    scale: str
    full: Experiment
    """The experiment with all scales."""


class _PlanFile(BaseModel):
    format: Literal["ndstack experiment 1"] = "ndstack experiment 1"
    scale: str
    place: int = 0
    experiment: Table


class KnownRuns:
    """Runs in tables, found by the configurations of trials.

    A sweep counts those that are complete. It can thus be continued on a machine that has only the tables of
    what was done elsewhere.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._keys: dict[str, str] = {}

    @cached_property
    def _records(self) -> dict[str, Record]:
        return {match_key(one.settings, one.stages): one for one in self.tables.runs.values()}

    def find(self, trial: Trial, measures: tuple[Measure, ...], extend: Extend | None) -> Record | None:
        """Return the row of a trial if it has everything that the trial has to measure, else None.

        Args:
            trial: a trial of a sweep.
            measures: what has to be measured with its model.
            extend: the rule by which it gets more epochs.
        """
        if not self.tables.runs:
            return None
        if trial.id not in self._keys:
            self._keys[trial.id] = match_key(trial.config, describe_stages(trial.config))
        record = self._records.get(self._keys[trial.id])
        if record is None or not self._ended(record, trial, extend):
            return None
        return record if self._measured(record, trial, measures) else None

    def _ended(self, record: Record, trial: Trial, extend: Extend | None) -> bool:
        """Return whether a run has all epochs of the trial, which may be more than those of its settings."""
        training, curve = trial.config.training, self.tables.curves[record.id]
        if not record.complete or not curve:
            return False
        if record.waited >= training.stop_after:
            return True
        epochs = sum(epoch.stage == curve[-1].stage for epoch in curve)
        if epochs < training.max_epochs:
            return False
        most = training.max_epochs + (extend.times * extend.epochs if extend is not None else 0)
        return extend is None or record.waited >= extend.within or epochs + extend.epochs > most

    def _measured(self, record: Record, trial: Trial, measures: tuple[Measure, ...]) -> bool:
        """Return whether the row has all measures, and the view of snapshots if the trial has them."""
        views = self.tables.views.get(record.id)
        if trial.config.training.snapshots and (views is None or views.evolution is None):
            return False
        tested = bool(record.test_by_length) or record.test_accuracy is not None
        found = {"test": tested, "text": record.test_perplexity is not None}
        return all(found[measure] for measure in measures)


class SweepFolder:
    """The folder of a sweep, with its trials."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def log(self) -> Path:
        """The file for the error output of processes."""
        return self.folder / "workers.log"

    def trial(self, trial: Trial) -> Path:
        """Return the run folder of a trial."""
        return self.folder / "trials" / trial.id

    def begin(self, full: Experiment, scale: str, corpus: Table | None, place: int = 0) -> Experiment:
        """Record an experiment and its place in the report, and return it at its scale, with its corpus."""
        try:
            for part in ("experiments", "trials"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NdstackError(f"cannot write to {self.folder}: {error.strerror or error}") from None
        if corpus is not None:
            full = full.model_copy(update={"settings": merge(full.settings, {"corpus": corpus})})
        plan = _PlanFile(scale=scale, place=place, experiment=full.model_dump(mode="json"))
        path = self.folder / "experiments" / f"{full.name}-{scale}.json"
        files.replace(path, plan.model_dump_json(indent=2) + "\n")
        return full.at(scale)

    def planned(self) -> list[Planned]:
        """Return all experiments that were started here, in the order of their campaign."""
        paths = sorted((self.folder / "experiments").glob("*.json"))
        if not paths:
            raise NdstackError(
                f"{self.folder} is not the folder of a sweep; expected one made by ndstack reproduce or sweep"
            )
        expected = "an experiment that ndstack reproduce or sweep wrote"
        plans = [(path, files.read_json_as(path, _PlanFile, expected)) for path in paths]
        found = []
        for path, plan in sorted(plans, key=lambda pair: pair[1].place):
            full = Experiment.of(plan.experiment, str(path))
            found.append(Planned(full.at(plan.scale), plan.scale, full))
        return found

    @cached_property
    def known(self) -> KnownRuns:
        """The runs that were made elsewhere, in the tables of this folder."""
        return KnownRuns(Tables.read(self.tables) if is_tables(self.tables) else Tables.empty())

    @property
    def tables(self) -> Path:
        """The folder of the tables of runs that were made elsewhere."""
        return self.folder / "known"

    def learn(self, tables: Tables, claims: Path | None = None) -> None:
        """Copy tables to this folder, so that the complete runs in them count as complete trials.

        Args:
            tables: the tables.
            claims: a file of claims that takes the place of the dissertation's, if it exists.
        """
        place = self.tables
        try:
            place.mkdir(parents=True, exist_ok=True)
            tables.write(place)
            if claims is not None and claims.is_file():
                files.replace(place / CLAIMS, files.read_text(claims))
            else:
                (place / CLAIMS).unlink(missing_ok=True)
        except OSError as error:
            raise NdstackError(f"cannot write to {place}: {error.strerror or error}") from None
        self.__dict__.pop("known", None)

    def record(
        self, trial: Trial, measures: tuple[Measure, ...] = (), extend: Extend | None = None
    ) -> Record | None:
        """Return the row of a trial that is complete in the tables, but not here; else None."""
        if is_done(self.trial(trial), measures):
            return None
        return self.known.find(trial, measures, extend)

    def status(
        self, trial: Trial, measures: tuple[Measure, ...] = (), extend: Extend | None = None
    ) -> Status:
        """Return the state of a trial.

        Args:
            trial: a trial of the sweep.
            measures: what has to be measured for the trial to be complete.
            extend: the rule by which it gets more epochs, which must be complete, too.
        """
        path = self.trial(trial)
        if is_done(path, measures):
            more = None if extend is None else more_epochs(Run.open(path), trial.config, extend)
            return "done" if more is None else "begun"
        if self.known.find(trial, measures, extend) is not None:
            return "known"
        if (path / FAILED).exists():
            return "failed"
        return "begun" if (path / STATE).exists() else "waiting"

    def fail(self, trial: Trial, message: str) -> None:
        """Record that a trial failed because of its settings."""
        path = self.trial(trial)
        path.mkdir(parents=True, exist_ok=True)
        files.replace(path / FAILED, json.dumps({"message": message}, indent=2) + "\n")

    def reopen(self, trial: Trial) -> None:
        """Record that a trial is not complete, because it will be measured or trained further."""
        (self.trial(trial) / RESULT).unlink(missing_ok=True)

    def forgive(self, trial: Trial) -> None:
        """Allow a trial that failed to be tried again."""
        (self.trial(trial) / FAILED).unlink(missing_ok=True)

    def failure(self, trial: Trial) -> str:
        """Return the error of a trial that failed."""
        found = files.read_json_as(self.trial(trial) / FAILED, dict[str, str], "the error of a trial")
        return found.get("message", "")

    def results(self) -> list[Path]:
        """Return the results of all complete trials, also of those that were not asked for this time."""
        return sorted((self.folder / "trials").glob(f"*/{RESULT}"))

    def run(self, trial: Trial) -> Run | None:
        """Return the run of a trial, or None if it has not started."""
        return Run.open(self.trial(trial)) if is_run(self.trial(trial)) else None
