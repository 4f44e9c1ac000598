"""Groups, which are all runs of one label on one language: what they spent, and when they end."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from ndstack import files
from ndstack.experiments.experiment import Extend, Rules
from ndstack.experiments.jobs import RESULT, JobResult, Measure
from ndstack.experiments.records import Record
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial
from ndstack.grammars.graphs import grouped
from ndstack.training.run import best_epoch

Group = tuple[str, str]
"""A label and a language."""


@dataclasses.dataclass
class Spent:
    """What the runs of a group have spent, including those that are not complete."""

    complete: int = 0
    known: int = 0
    """The number of complete runs that are known from tables."""
    epochs: int = 0
    updates: int = 0
    """The number of updates of complete runs."""
    seconds: float = 0.0
    """The number of seconds of training."""
    scores: list[float] = dataclasses.field(default_factory=list)
    """The best validation cross-entropy difference (on text, cross-entropy) of each complete run."""

    @property
    def best(self) -> float:
        """The lowest score."""
        return min(self.scores, default=math.inf)

    def add(self, record: Record) -> None:
        """Add a complete run that is known from tables."""
        self.complete += 1
        self.known += 1
        self.epochs += record.epochs
        self.updates += record.updates or 0
        self.seconds += record.seconds
        self.scores.append(record.score)


def group_of(trial: Trial) -> Group:
    """Return the group of a trial."""
    return trial.label, trial.language


def members(trials: Iterable[Trial]) -> dict[Group, list[Trial]]:
    """Return the trials of every group, in order."""
    return grouped(trials, group_of)


def spent(
    folder: SweepFolder,
    trials: Iterable[Trial],
    measures: tuple[Measure, ...] = (),
    extend: Extend | None = None,
) -> Spent:
    """Return what trials have spent so far, here or elsewhere."""
    total = Spent()
    for trial in trials:
        record = folder.record(trial, measures, extend)
        if record is not None:
            total.add(record)
            continue
        run = folder.run(trial)
        if run is None:
            continue
        history = run.metrics()
        total.epochs += len(history)
        total.seconds += sum(run.seconds().values())
        if history and folder.status(trial, measures) == "done":
            best = best_epoch(history)
            total.complete += 1
            total.scores.append(best.get("validation_difference", best["validation_cross_entropy"]))
            total.updates += files.read_json_as(run.folder / RESULT, JobResult, "a result").updates or 0
    return total


def ended(rules: Rules, so_far: Spent) -> str | None:
    """Return why a group needs no further run; None if it does."""
    until, budget = rules.until, rules.budget
    if until is not None and so_far.best <= until.difference:
        return f"a run is within {until.difference:g} nats per symbol of the lower bound"
    if budget is not None and budget.epochs is not None and so_far.epochs >= budget.epochs:
        return f"the budget of {budget.epochs:,} epochs is spent"
    if budget is not None and budget.seconds is not None and so_far.seconds >= budget.seconds:
        return f"the budget of {budget.seconds:g} seconds is spent"
    return None


def not_needed(
    folder: SweepFolder, trials: Sequence[Trial], rules: Rules, measures: tuple[Measure, ...] = ()
) -> dict[str, str]:
    """Return the trials that are not run because their group has ended, with the reason."""
    if rules.until is None and rules.budget is None:
        return {}
    found: dict[str, str] = {}
    for mine in members(trials).values():
        reason = ended(rules, spent(folder, mine, measures, rules.extend))
        if reason is not None:
            found |= {
                trial.id: reason
                for trial in mine
                if folder.status(trial, measures, rules.extend) == "waiting"
            }
    return found
