"""The runs that undecided claims still need, by the rules of their open parts.

A need is a range. "Solves" is decided by the third run if one of them succeeds, but by the tenth if none
does. The loser of a comparison must have runs that ended by the recipe's own rule; the winner need not.
"""

import dataclasses
import math
from collections.abc import Sequence

from ndstack.experiments.claims.claim import ClaimPart, RuleName
from ndstack.experiments.claims.evidence import Side, metric_of
from ndstack.experiments.claims.ledger import Entry
from ndstack.experiments.claims.rules import ENOUGH_TO_CORRELATE, WHOLE

_Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Need:
    """The further runs of one model on one language that a claim needs, at least and at most."""

    experiments: tuple[str, ...]
    """The experiments whose settings the runs must have."""
    label: str
    language: str
    """The language; "" on text."""
    least: int
    most: int

    @property
    def name(self) -> str:
        """The name of the side."""
        return Side(self.label, self.language, ()).name

    def is_for(self, label: str, language: str) -> bool:
        """Return whether runs of a model on a language are meant; k is 2 by default."""
        here = not self.language or language.removesuffix("(k=2)") == self.language.removesuffix("(k=2)")
        return here and label == self.label


def needs_of(entry: Entry) -> list[Need]:
    """Return what a claim needs; nothing if it is decided, and no side that has all runs it can need."""
    found: dict[tuple[tuple[str, ...], str, str], _Range] = {}
    for part, sides in entry.open_cases:
        for side, (least, most) in zip(sides, _lacking(part, sides), strict=True):
            key = (*part.experiments,), side.label, side.language
            before = found.get(key, (0, 0))
            found[key] = max(before[0], least), max(before[1], most)
    return [Need(*key, least, most) for key, (least, most) in found.items() if most > 0]


def _lacking(part: ClaimPart, sides: Sequence[Side]) -> list[_Range]:
    """Return the runs that each side of an open case lacks; one at least has to lack some."""
    if part.rule in WHOLE:
        found = _lacking_of_many(part, sides)
    else:
        found = [_lacking_alone(part, side) for side in sides]
    if not any(most for _, most in found):
        return [(1, 1)] * len(found)  # for example, what decides it was not measured
    return found if any(least for least, _ in found) else [(most, most) for _, most in found]


def _lacking_alone(part: ClaimPart, side: Side) -> _Range:
    counted, settled = len(side.counted), len(side.settled)
    if part.rule in ("solves", "fails"):
        more = part.runs - counted
        return (more, more) if side.solved else (max(1, more), max(1, more, part.failures - settled))
    if part.rule in ("above", "below", "near"):
        usable = len(side.runs) if part.metric.startswith("stack.") else counted
        return (max(1, part.runs - usable),) * 2
    measured = [one for one in side.runs if metric_of(one, part.metric) is not None]
    if part.rule == "ratio":
        return (max(0, part.runs - len(measured)),) * 2
    if part.rule in ("share", "faster"):
        return (max(0 if side.counted else 1, part.runs - len(side.runs)),) * 2
    least = max(0 if measured else 1, part.runs - counted)
    return least, max(least, part.runs - settled)


def _lacking_of_many(part: ClaimPart, sides: Sequence[Side]) -> list[_Range]:
    """Return what sides lack if a rule needs only some of them: those that lack the fewest runs."""
    wanted: dict[RuleName, int] = {
        "correlation": math.ceil(ENOUGH_TO_CORRELATE / part.runs),
        "trend": ENOUGH_TO_CORRELATE,
        "no_winner": 2,
    }
    lacking = [max(0, part.runs - len(side.counted)) for side in sides]
    order = sorted(range(len(sides)), key=lambda place: lacking[place])
    first = {*order[: wanted.get(part.rule, len(sides))]}
    return [(more if place in first else 0, more) for place, more in enumerate(lacking)]
