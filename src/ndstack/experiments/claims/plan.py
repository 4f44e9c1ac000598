"""A plan for the undecided claims: which runs are missing, and how many processor hours they take."""

import dataclasses
from collections.abc import Iterable, Sequence

from ndstack.experiments.claims.claim import Claim
from ndstack.experiments.claims.costs import EPOCHS, SECONDS, TEXT_EPOCHS, TEXT_SECONDS, Cost, Costs
from ndstack.experiments.claims.ledger import Entry
from ndstack.experiments.claims.needs import Need, needs_of
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.records import Tables
from ndstack.experiments.registry import find
from ndstack.experiments.trials import Trial, expand
from ndstack.grammars.graphs import grouped

Hours = tuple[float, float]
"""At least and at most; see `ndstack.experiments.claims.needs`."""
LOW, HIGH = min(SECONDS.values()), max(SECONDS.values())
ABOUT = f"""
Runs and hours are given as "at least..at most": a model that succeeds early needs fewer runs than one that
fails. The claim that costs least comes first, then the one that costs least after it; "in all" counts the
runs that claims share once. Hours are those of one processor core: the median seconds per epoch of the model,
or of the nearest one with a number, times the median number of epochs of its runs that ended by the recipe's
own rule. Where the tables say nothing, {EPOCHS} epochs ({TEXT_EPOCHS} on text) of {LOW:g} to {HIGH:g} seconds
({TEXT_SECONDS:g} on text) are assumed. A claim may be decided earlier: it "differs" as soon as one part holds
and another does not, and what holds generally is decided by about half of its cases.
"""


@dataclasses.dataclass(frozen=True)
class MissingRuns:
    """What a claim needs of one model on one language, and what each run costs."""

    need: Need
    cost: Cost
    shared: int
    """A number that is the same for runs that several claims can use."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A claim in a plan."""

    claim: Claim
    missing: tuple[MissingRuns, ...]
    hours: Hours
    """The hours of all its missing runs."""
    in_all: Hours
    """The hours of this step and those before it, in which shared runs count once."""

    def as_json(self) -> dict[str, object]:
        """Return the step as plain data."""
        missing = [
            {
                "label": one.need.label,
                "language": one.need.language,
                "least": one.need.least,
                "most": one.need.most,
                "model": one.cost.model,
                "seconds_per_epoch": round(one.cost.seconds, 2),
                "epochs": one.cost.epochs,
                "from": one.cost.source,
            }
            for one in self.missing
        ]
        return {
            "claim": self.claim.id,
            "hours": [round(value, 2) for value in self.hours],
            "in_all": [round(value, 2) for value in self.in_all],
            "missing": missing,
        }

    def row(self) -> list[str]:
        """Return the cells of a table: the claim, runs, hours, hours in all, and what is missing."""
        least, most = (sum(getattr(one.need, name) for one in self.missing) for name in ("least", "most"))
        by_label = grouped(self.missing, lambda one: one.need.label)
        alike = grouped(by_label, lambda label: _places(by_label[label]))
        return [
            self.claim.id,
            _range(str(least), str(most)),
            _range(*(f"{value:.1f}" for value in self.hours)),
            _range(*(f"{value:.1f}" for value in self.in_all)),
            "; ".join(f"{' / '.join(labels)}: {places}" for places, labels in alike.items()),
        ]


def _places(missing: Iterable[MissingRuns]) -> str:
    """Return the numbers of runs of one model, with the languages: "3 on dyck, 2 on count-3"."""
    counts = grouped(missing, lambda one: _range(str(one.need.least), str(one.need.most)))
    tongues = {count: ", ".join(one.need.language for one in mine) for count, mine in counts.items()}
    return " and ".join(f"{count} on {names}" if names else count for count, names in tongues.items())


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least}..{most}"


def make_plan(entries: Sequence[Entry], tables: Tables) -> list[Step]:
    """Return the undecided claims, each time the one that costs least after those before it.

    Args:
        entries: the decided and undecided claims.
        tables: the tables by which they were decided; costs are estimated from them.
    """
    sides = _Sides(Costs(tables))
    waiting = [
        (one.claim, [sides.missing(need) for need in needs_of(one)]) for one in entries if not one.is_decided
    ]
    planned: dict[int, tuple[int, int]] = {}
    steps: list[Step] = []
    total = 0.0, 0.0
    while waiting:
        costs = [_hours(missing, planned) for _, missing in waiting]
        place = min(range(len(waiting)), key=lambda place: costs[place])
        claim, missing = waiting.pop(place)
        total = total[0] + costs[place][0], total[1] + costs[place][1]
        steps.append(Step(claim, (*missing,), _hours(missing, {}), total))
        for one in missing:
            before = planned.get(one.shared, (0, 0))
            planned[one.shared] = max(before[0], one.need.least), max(before[1], one.need.most)
    return steps


def _hours(missing: Iterable[MissingRuns], planned: dict[int, tuple[int, int]]) -> Hours:
    """Return the hours of missing runs that are not planned yet."""
    least = most = 0.0
    for one in missing:
        before = planned.get(one.shared, (0, 0))
        least += max(0, one.need.least - before[0]) * one.cost.hours
        most += max(0, one.need.most - before[1]) * one.cost.hours
    return least, most


class _Sides:
    """The sides of claims, which are the same if their experiments have trials in common."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.known: list[set[str]] = []

    def missing(self, need: Need) -> MissingRuns:
        found = [(find(name), trial) for name in need.experiments for trial in _trials(find(name), need)]
        ids = {trial.id for _, trial in found}
        shared = next((place for place, known in enumerate(self.known) if known & ids), len(self.known))
        if shared == len(self.known):
            self.known.append(ids)
        self.known[shared] |= ids
        names = [*dict.fromkeys(trial.config.model for _, trial in found)]
        name = names[len(names) // 2]  # of several sizes, the one in the middle
        experiment, trial = next(pair for pair in found if pair[1].config.model == name)
        return MissingRuns(need, self.costs.of(trial.config, text=experiment.text), shared)


def _trials(experiment: Experiment, need: Need) -> list[Trial]:
    """Return the first trials of a model on a language, one for each of its settings."""
    models = [model for model in experiment.models if model.label == need.label]
    if not models:
        return []
    trials = expand(experiment.model_copy(update={"models": models, "restarts": 1}))
    return [trial for trial in trials if need.is_for(trial.label, trial.language)]
