"""The verdicts on claims, given the tables of results."""

import dataclasses
from collections.abc import Sequence

from ndstack.experiments.claims.claim import Claim, ClaimPart
from ndstack.experiments.claims.evidence import Side
from ndstack.experiments.claims.rules import Answer, Outcome, apply, compared
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Tables
from ndstack.experiments.registry import find
from ndstack.experiments.results import Finished


@dataclasses.dataclass(frozen=True)
class Decided:
    """A part of a claim on one language."""

    part: ClaimPart
    language: str
    sides: tuple[Side, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def open(self) -> list[tuple[Side, ...]]:
        """The sides of each case that is not decided."""
        count = len(self.part.left)
        cases = compared(self.part, self.sides[:count], self.sides[count:])
        return [sides for sides, one in zip(cases, self.outcomes, strict=True) if one.answer is None]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A claim and its verdict."""

    claim: Claim
    decided: tuple[Decided, ...]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all parts."""
        return [one for decided in self.decided for one in decided.outcomes]

    @property
    def answers(self) -> list[Answer | None]:
        """The answers in all cases; a part that has to hold generally has one answer for all of its cases."""
        found: list[Answer | None] = []
        for part in self.claim.parts:
            found += self._answers_of(part)
        return found

    def _answers_of(self, part: ClaimPart) -> list[Answer | None]:
        mine = [one.answer for decided in self.decided if decided.part is part for one in decided.outcomes]
        return [_generally(mine)] if part.generally else mine

    @property
    def open_cases(self) -> list[tuple[ClaimPart, tuple[Side, ...]]]:
        """The sides of each case whose answer could still change the verdict; none if it is decided."""
        if self.is_decided:
            return []
        parts = [part for part in self.claim.parts if None in self._answers_of(part)]
        return [
            (part, sides)
            for part in parts
            for decided in self.decided
            if decided.part is part
            for sides in decided.open
        ]

    @property
    def verdict(self) -> str:
        """Whether the claim is reproduced (all parts hold), not reproduced (no part holds), or differs.

        If some parts hold and some do not, no answer of an undecided part could change the verdict.
        """
        answers = {*self.answers}
        if "differs" in answers or {"yes", "no"} <= answers:
            return "differs"
        if None in answers:
            have, need = self.progress
            return f"undecided: {have} of {need} runs"
        return "reproduced" if answers == {"yes"} else "not reproduced"

    @property
    def is_decided(self) -> bool:
        """Whether the claim is decided."""
        return not self.verdict.startswith("undecided")

    @property
    def open(self) -> int:
        """The number of answers that are not known."""
        return self.answers.count(None)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of existing runs that undecided parts need, and the number that they need in all."""
        needs: dict[str, tuple[int, int]] = {}
        for one in self.outcomes:
            for name, (have, need) in (one.needs if one.answer is None else {}).items():
                before = needs.get(name, (have, 0))
                needs[name] = min(before[0], have), max(before[1], need)
        total = sum(need for _, need in needs.values())
        return sum(min(have, need) for have, need in needs.values()), total

    @property
    def runs(self) -> set[str]:
        """The identifiers of all runs on which the verdict is based."""
        return {one.record.id for decided in self.decided for side in decided.sides for one in side.runs}


def _generally(answers: Sequence[Answer | None]) -> Answer | None:
    """Return yes if more than half of the answers are yes, and no if at least half are not."""
    if 2 * answers.count("yes") > len(answers):
        return "yes"
    return "no" if 2 * (len(answers) - answers.count("yes") - answers.count(None)) >= len(answers) else None


class _Runs:
    """The runs of experiments, each of which is searched for once."""

    def __init__(self, tables: Tables, staged: bool) -> None:
        self.tables, self.staged = tables, staged
        self.known: dict[str, list[Finished]] = {}

    def side(self, part: ClaimPart, label: str, language: str) -> Side:
        found: dict[str, Finished] = {}
        for name in part.experiments:
            if name not in self.known:
                self.known[name] = runs_of(self.tables, find(name), staged=self.staged)
            for one in self.known[name]:
                if one.label == label and (not language or one.language == language):
                    found.setdefault(one.record.id, one)
        return Side(label, language, tuple(found.values()))


def decide(claims: Sequence[Claim], tables: Tables, *, staged: bool = False) -> list[Entry]:
    """Decide claims by their rules.

    Args:
        claims: the claims.
        tables: the tables of results.
        staged: whether to use runs with stages of training, instead of those with the dissertation's recipe.
    """
    runs = _Runs(tables, staged)
    return [Entry(claim, tuple(_decide(claim, runs))) for claim in claims]


def _decide(claim: Claim, runs: _Runs) -> list[Decided]:
    found = []
    for part in claim.parts:
        for language in part.languages or [""]:
            left = [runs.side(part, label, language) for label in part.left]
            right = [runs.side(part, label, language) for label in part.right]
            outcomes = apply(part, left, right)
            found.append(Decided(part, language, (*left, *right), tuple(outcomes)))
    return found
