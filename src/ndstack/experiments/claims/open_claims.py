"""The ledger in the middle of a sweep: whether a trial can still decide one of the claims it is made for.

The claims are decided with the tables of `--known` and the complete trials of the folder, as `ndstack gather`
would read them. Trials with stages of training are asked about in the ledger of runs with stages.
"""

from collections.abc import Iterable, Sequence

from ndstack.errors import NdstackError
from ndstack.experiments.claims.claim import Claim, claims_for
from ndstack.experiments.claims.ledger import decide
from ndstack.experiments.claims.needs import Need, needs_of
from ndstack.experiments.experiment import Experiment, Rules
from ndstack.experiments.gathering import Gathered, Origin, take_run
from ndstack.experiments.records import Tables
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial
from ndstack.training import Run

_State = tuple[str | None, list[Need]]
"""The verdict on a claim if it is decided, and what it needs."""


class OpenClaims:
    """The verdicts on the claims of a sweep, which are found again only after a trial has ended."""

    def __init__(self, folder: SweepFolder, names: Iterable[str]) -> None:
        self.folder = folder
        self._claims = _named(folder, [*dict.fromkeys(names)])
        self._tables: Tables | None = None
        self._read: dict[str, int] = {}
        self._states: dict[bool, dict[str, _State]] = {}

    def forget(self) -> None:
        """Decide the claims again when they are needed, because a trial has ended."""
        self._states.clear()

    def reason(self, trial: Trial, rules: Rules) -> str | None:
        """Return why a trial can decide nothing; None if it is needed, or not made for any claim."""
        if not rules.claims:
            return None
        staged, reasons = bool(trial.config.training.stages), []
        if staged not in self._states:
            self._states[staged] = self._decide(staged)
        for name in rules.claims:
            verdict, needs = self._states[staged][name]
            if any(need.is_for(trial.label, trial.language) for need in needs):
                return None
            more = f"needs no further run of {trial.label} on {trial.language}"
            reasons.append(f"{name} {verdict or more}")
        return "; ".join(reasons)

    def _decide(self, staged: bool) -> dict[str, _State]:
        entries = decide(self._claims, self._all_runs(), staged=staged)
        return {one.claim.id: (one.verdict if one.is_decided else None, needs_of(one)) for one in entries}

    def _all_runs(self) -> Tables:
        """Return the tables of all complete runs; only those that are new, or longer now, are read."""
        tables = self.folder.known.tables if self._tables is None else self._tables
        for path in self.folder.results():
            time = path.stat().st_mtime_ns
            if self._read.get(path.parent.name) != time:
                tables = take_run(tables, Run.open(path.parent), Origin(), Gathered())
                self._read[path.parent.name] = time
        self._tables = tables
        return tables


def check_claims(folder: SweepFolder, planned: Sequence[Experiment]) -> None:
    """Raise an error if an experiment names a claim that does not exist or to which it has no runs."""
    for one in planned:
        for claim in _named(folder, one.claims, f"{one.name}: "):
            asked = _asked(claim)
            if not any(need.is_for(*own) for need in asked for own in _sides(one)):
                raise NdstackError(
                    f"{one.name}: {claim.id} needs none of its runs, but for example those of {asked[0].name}"
                )


def _asked(claim: Claim) -> list[Need]:
    return [
        Need((*part.experiments,), label, language, 1, 1)
        for part in claim.parts
        for label in (*part.left, *part.right)
        for language in part.languages or [""]
    ]


def _sides(experiment: Experiment) -> list[tuple[str, str]]:
    return [(model.label, language) for model in experiment.models for language in experiment.all_languages()]


def _named(folder: SweepFolder, names: Sequence[str], source: str = "") -> list[Claim]:
    """Return the claims with these names."""
    if not names:
        return []
    claims = {one.id: one for one in claims_for(folder.tables)}
    for name in names:
        if name not in claims:
            known = [*claims]
            raise NdstackError(f"{source}there is no claim {name}; expected one of {known[0]} to {known[-1]}")
    return [claims[name] for name in names]
