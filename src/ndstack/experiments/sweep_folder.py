"""The folder of a sweep: trials that several experiments may share, and which experiments they are for.

| file | what |
|---|---|
| `experiments/NAME-SCALE.json` | an experiment, complete: `ndstack report` needs no other |
| `trials/ID/` | a run folder for each trial |
| `trials/ID/result.json` | it is complete |
| `known/` | tables of runs that were made elsewhere; those that are complete are not run here |
| `trials/ID/failed.json` | it failed for reasons of its own, and is not tried again |
| `workers.log` | what the processes of the local engine had to say |
| `report/` | what `ndstack report` makes |
"""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from pathlib import Path
from typing import Literal

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment, Extend, Values
from ndstack.experiments.jobs import FAILED, RESULT, Measure, is_done, more_epochs
from ndstack.experiments.known import KnownRuns
from ndstack.experiments.records import Record, Tables, is_tables
from ndstack.experiments.trials import Trial
from ndstack.settings.reading import merge
from ndstack.training import Run
from ndstack.training.run import STATE, is_run

FORMAT = "ndstack experiment 1"
Status = Literal["done", "known", "failed", "begun", "waiting"]
"""Done and known are both complete: done here, or known from tables of runs that were made elsewhere."""
COMPLETE: tuple[Status, ...] = ("done", "known")


@dataclasses.dataclass(frozen=True)
class Planned:
    """An experiment at a scale, as it was begun in a folder."""

    experiment: Experiment
    """At its scale."""
    scale: str
    full: Experiment
    """As the file has it, all scales."""


class SweepFolder:
    """The folder of a sweep, with its trials."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def log(self) -> Path:
        """What processes say on their error output."""
        return self.folder / "workers.log"

    def trial(self, trial: Trial) -> Path:
        """The run folder of a trial."""
        return self.folder / "trials" / trial.id

    def begin(self, full: Experiment, scale: str, corpus: Values | None, place: int = 0) -> Experiment:
        """Note an experiment and its place in a report; it comes back at its scale, on its corpus."""
        try:
            for part in ("experiments", "trials"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NdstackError(f"cannot write to {self.folder}: {error.strerror or error}") from None
        if corpus is not None:
            full = full.model_copy(update={"settings": merge(full.settings, {"corpus": corpus})})
        plan = {"format": FORMAT, "scale": scale, "place": place, "experiment": full.model_dump(mode="json")}
        path = self.folder / "experiments" / f"{full.name}-{scale}.json"
        files.replace(path, (json.dumps(plan, indent=2) + "\n").encode())
        return full.at(scale)

    def planned(self) -> list[Planned]:
        """All experiments that were begun here, in the order of their campaign."""
        paths = sorted((self.folder / "experiments").glob("*.json"))
        if not paths:
            raise NdstackError(
                f"{self.folder} is not the folder of a sweep; expected what ndstack reproduce or sweep made"
            )
        found: list[tuple[int, Planned]] = []
        for path in paths:
            plan = files.read_json(path)
            known = isinstance(plan, dict) and plan.get("format") == FORMAT
            if not known or not isinstance(plan.get("scale"), str):
                raise NdstackError(
                    f"{path} is not an experiment; expected what ndstack reproduce or sweep wrote"
                )
            full = Experiment.of(plan.get("experiment"), str(path))
            place = plan.get("place", 0)
            planned = Planned(full.at(plan["scale"]), plan["scale"], full)
            found.append((place if isinstance(place, int) else 0, planned))
        return [planned for _, planned in sorted(found, key=lambda pair: pair[0])]

    @cached_property
    def known(self) -> KnownRuns:
        """The runs that were made elsewhere, as far as this folder was told of them."""
        place = self.folder / "known"
        return KnownRuns(Tables.read(place) if is_tables(place) else Tables.empty())

    def learn(self, tables: Tables) -> None:
        """Count the complete runs of tables as complete, now and whenever this folder is used."""
        place = self.folder / "known"
        try:
            place.mkdir(parents=True, exist_ok=True)
            tables.write(place)
        except OSError as error:
            raise NdstackError(f"cannot write to {place}: {error.strerror or error}") from None
        self.__dict__.pop("known", None)

    def record(
        self, trial: Trial, measures: tuple[Measure, ...] = (), extend: Extend | None = None
    ) -> Record | None:
        """The row of a trial that is known to be complete from tables, unless it is complete here."""
        if is_done(self.trial(trial), measures):
            return None
        return self.known.find(trial, measures, extend)

    def status(
        self, trial: Trial, measures: tuple[Measure, ...] = (), extend: Extend | None = None
    ) -> Status:
        """How far a trial is.

        Args:
            trial: of the sweep.
            measures: what has to be measured for a trial to be complete.
            extend: the rule by which it gets more epochs, which have to be trained as well.
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
        """Note that a trial failed for reasons of its own."""
        path = self.trial(trial)
        path.mkdir(parents=True, exist_ok=True)
        files.replace(path / FAILED, (json.dumps({"message": message}, indent=2) + "\n").encode())

    def reopen(self, trial: Trial) -> None:
        """Note that a trial is not complete: it will be measured, or trained, further."""
        (self.trial(trial) / RESULT).unlink(missing_ok=True)

    def forgive(self, trial: Trial) -> None:
        """Let a trial that failed be tried again."""
        (self.trial(trial) / FAILED).unlink(missing_ok=True)

    def failure(self, trial: Trial) -> str:
        """Why it failed."""
        found = files.read_json(self.trial(trial) / FAILED)
        return str(found.get("message", found) if isinstance(found, dict) else found)

    def run(self, trial: Trial) -> Run | None:
        """The run of a trial, if it has begun."""
        return Run.open(self.trial(trial)) if is_run(self.trial(trial)) else None
