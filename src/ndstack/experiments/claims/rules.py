"""The rules by which parts of claims are decided. Each is a function of the runs on both sides.

`claims.toml` says which rules decide which claim. An answer is yes, no, "differs" (neither, for example if
two models are alike but one should be better), or None for undecided. A side needs three runs that count (see
`evidence`). A model can lose or fail only by runs that ended by the recipe's own rule.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ndstack.experiments.claims.claim import ClaimPart, RuleName
from ndstack.experiments.claims.evidence import FAR, Side, metric_of, show_number, value_of

Answer = Literal["yes", "no", "differs"]
Decision = tuple[Answer, Side | None]
"""An answer, and the side that loses if there is one."""
CIRCUITS = ("Agr.", "Lic.", "GPE", "GSE", "CE", "LDD")
ENOUGH_TO_CORRELATE = 8
TWO_SIDED = 1.96
"""The number of standard deviations that are exceeded by chance in one of twenty cases."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one part of a claim, for one model on one language."""

    answer: Answer | None
    about: str
    """What was compared, with numbers."""
    needs: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """For each side, the number of runs that it has and the number that it needs."""


def apply(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> list[Outcome]:
    """Return the outcomes of a part on one language, given a side for each model on the left and right."""
    if part.rule in WHOLE:
        return [WHOLE[part.rule](part, left, right)]
    if part.rule in ALONE:
        return [ALONE[part.rule](part, side) for side in left]
    return [PAIRS[part.rule](part, one, other) for one in left for other in right]


def compared(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> list[tuple[Side, ...]]:
    """Return the sides on which each outcome of `apply` depends, in the same order."""
    if part.rule in WHOLE:
        return [(*left, *right)]
    if part.rule in ALONE:
        return [(side,) for side in left]
    return [(one, other) for one in left for other in right]


def solves(part: ClaimPart, side: Side) -> Outcome:
    """Decide whether some run has solved the language; no, if enough runs ended without success."""
    counted, failed = len(side.counted), len(side.settled)
    about = f"{side.name}: {len(side.solved)} of {counted} runs that count solved it"
    if side.solved:
        return Outcome("yes" if counted >= part.runs else None, about, {side.name: (counted, part.runs)})
    needs = {side.name: (failed, part.failures)}
    return Outcome("no" if failed >= part.failures else None, about, needs)


def fails(part: ClaimPart, side: Side) -> Outcome:
    """Decide whether no run has solved the language, with `runs` runs if all are far from it."""
    far = bool(side.runs) and min(one.score for one in side.runs) > FAR
    found = solves(part.model_copy(update={"failures": part.runs}) if far else part, side)
    turned: dict[Answer, Answer] = {"yes": "no", "no": "yes"}
    return found if found.answer is None else dataclasses.replace(found, answer=turned[found.answer])


def beats(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether the left side is better by more than the margin; "differs" if neither side is."""

    def decide(lead: float, margin: float) -> Decision:
        answer: Answer = "yes" if lead > margin else "no" if lead < -margin else "differs"
        return answer, right if lead > 0 else left

    return _compare(part, left, right, decide)


def not_beats(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether the left side is not better by more than the margin."""
    return _compare(part, left, right, lambda lead, margin: ("no", right) if lead > margin else ("yes", left))


def alike(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether the sides differ by no more than the margin."""

    def decide(lead: float, _: float) -> Decision:
        return ("yes", None) if abs(lead) <= part.margin else ("no", right if lead > 0 else left)

    return _compare(part, left, right, decide)


def share(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether a greater share of the runs on the left has solved the language."""
    shares = [len(side.solved) / len(side.counted) if side.counted else 0.0 for side in (left, right)]
    about = f"{left.name}: {shares[0]:.0%} solved, {right.name}: {shares[1]:.0%}"
    if not _enough(part, left, right):
        return _undecided(part, left, right, about)
    lead = shares[0] - shares[1]
    return Outcome("yes" if lead > 0 else "no" if lead < 0 else "differs", about)


def faster(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether the median run on the left needs fewer epochs to solve the language, by the share.

    A run that ended without solving it needs infinitely many. If no median is finite, the epochs until a run
    has converged are compared.
    """
    for metric in ("epochs_to_solve", "epochs_to_converge"):
        medians = [_median([metric_of(one, metric) for one in side.counted]) for side in (left, right)]
        if any(value is not None and math.isfinite(value) for value in medians):
            break
    a, b = medians
    about = f"{left.name}: {show_number(a)} epochs, {right.name}: {show_number(b)}"
    if a is None or b is None or not _enough(part, left, right):
        return _undecided(part, left, right, about)
    if a < b * (1 - part.share):
        return Outcome("yes", about)
    return Outcome("no" if a > b / (1 - part.share) else "differs", about)


def above(part: ClaimPart, side: Side) -> Outcome:
    """Decide whether the number of the side is above the threshold."""
    return _bound(part, side, lambda value: value > part.threshold, f"more than {part.threshold:g}")


def below(part: ClaimPart, side: Side) -> Outcome:
    """Decide whether the number of the side is below the threshold."""
    return _bound(part, side, lambda value: value < part.threshold, f"less than {part.threshold:g}")


def near(part: ClaimPart, side: Side) -> Outcome:
    """Decide whether the number of the side is that of the dissertation, up to a share of it."""
    wanted = part.printed[side.label]
    value = value_of(side.counted, part.metric, part.statistic, part.runs)
    about = f"{side.name}: {show_number(value)}, expected {show_number(wanted)}"
    if value is None or len(side.counted) < part.runs:
        return Outcome(None, about, _needs(part, side))
    answer: Answer = "yes" if abs(value / wanted - 1) <= part.share else "differs"
    return Outcome(answer, about, _needs(part, side))


def ratio(part: ClaimPart, left: Side, right: Side) -> Outcome:
    """Decide whether means have the dissertation's ratio, up to a factor of `threshold`; all runs count."""
    known = [
        [value for one in side.runs for value in [metric_of(one, part.metric)] if value is not None]
        for side in (left, right)
    ]
    printed = part.printed[left.label] / part.printed[right.label]
    a, b = map(_mean, known)
    needs = {side.name: (len(found), part.runs) for side, found in zip((left, right), known, strict=True)}
    if a is None or b is None:
        return Outcome(None, f"{left.name} / {right.name}: not measured", needs)
    numbers = f"{show_number(a)} / {show_number(b)} = {a / b:.1f}"
    about = f"{left.label} / {right.label}: {numbers}, theirs {printed:.1f}"
    if min(map(len, known)) < part.runs:
        return Outcome(None, about, needs)
    fits = 1 / part.threshold <= a / b / printed <= part.threshold
    return Outcome("yes" if fits else "differs", about, needs)


def correlation(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> Outcome:
    """Decide whether test perplexity and SG score are uncorrelated within models: |r| < threshold."""
    x, y = [], []
    for side in left:
        pairs = [(metric_of(one, "test_perplexity"), metric_of(one, "sg_score")) for one in side.counted]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) >= part.runs:
            x += [a - statistics.fmean(a for a, _ in known) for a, _ in known]
            y += [b - statistics.fmean(b for _, b in known) for _, b in known]
    return _correlated(part, x, y, "perplexity and SG score within models")


def trend(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> Outcome:
    """Decide whether the metric does not depend on the size of the stack: |r| < threshold over models."""
    x, y = [], []
    for side in left:
        value = value_of(side.counted, part.metric, part.statistic, part.runs)
        if value is not None and len(side.counted) >= part.runs:
            x.append(metric_of(side.counted[0], "size") or 0.0)
            y.append(value)
    return _correlated(part, x, y, f"{part.metric} and |Q||Γ| over models")


def most_beat(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> Outcome:
    """Decide whether most models on the left are better than the one on the right."""
    (other,) = right
    found = [beats(part, side, other) for side in left]
    decided = [one for one in found if one.answer is not None]
    better = sum(one.answer == "yes" for one in decided)
    about = f"{better} of {len(decided)} models are better than {other.name}"
    needs = _needs(part, *left, other)
    if 2 * better > len(left):
        return Outcome("yes", about, needs)
    if 2 * (len(decided) - better) >= len(left):
        return Outcome("no", about, needs)
    return Outcome(None, about, needs)


def no_winner(part: ClaimPart, left: Sequence[Side], right: Sequence[Side]) -> Outcome:
    """Decide whether no model has the best mean on all circuits."""
    known = [side for side in left if len(side.counted) >= part.runs]
    needs = _needs(part, *left)
    if len(known) < 2:
        return Outcome(None, "fewer than two models have enough runs", needs)
    winners = {}
    for name in CIRCUITS:
        means = {
            side.label: _mean([metric_of(one, f"circuit.{name}") for one in side.counted]) for side in known
        }
        scored = {label: value for label, value in means.items() if value is not None}
        if scored:
            winners[name] = max(scored, key=lambda label: scored[label])
    about = ", ".join(f"{name}: {label}" for name, label in winners.items())
    if len(winners) < len(CIRCUITS):
        return Outcome(None, "circuits were not measured", needs)
    return Outcome("yes" if len(set(winners.values())) > 1 else "no", about, needs)


ALONE: dict[RuleName, Callable[[ClaimPart, Side], Outcome]] = {
    "solves": solves,
    "fails": fails,
    "above": above,
    "below": below,
    "near": near,
}
PAIRS: dict[RuleName, Callable[[ClaimPart, Side, Side], Outcome]] = {
    "beats": beats,
    "not_beats": not_beats,
    "alike": alike,
    "share": share,
    "faster": faster,
    "ratio": ratio,
}
WHOLE: dict[RuleName, Callable[[ClaimPart, Sequence[Side], Sequence[Side]], Outcome]] = {
    "correlation": correlation,
    "trend": trend,
    "most_beat": most_beat,
    "no_winner": no_winner,
}


def _compare(part: ClaimPart, left: Side, right: Side, decide: Callable[[float, float], Decision]) -> Outcome:
    """Return the decision about the lead of the left side and the margin.

    The numbers of both sides are those of the same number of runs. The loser must have enough runs that ended
    by the recipe's own rule.
    """
    runs = [side.usable(part.runs) for side in (left, right)]
    count = min(map(len, runs))
    a, b = (value_of(mine, part.metric, part.statistic, count) for mine in runs)
    about = f"{left.name}: {show_number(a)}, {right.name}: {show_number(b)}"
    if part.statistic == "best" and part.metric in ("difference", "perplexity"):
        about += f" (best of {count})"
    if a is None or b is None or not _enough(part, left, right):
        return _undecided(part, left, right, about)
    margin = max(part.margin, part.share * max(abs(a), abs(b)))
    answer, loser = decide(a - b if part.higher else b - a, margin)
    if loser is not None and len(loser.settled) < part.runs:
        return _undecided(part, left, right, about)
    return Outcome(answer, about)


def _bound(part: ClaimPart, side: Side, holds: Callable[[float], bool], wanted: str) -> Outcome:
    usable = side.counted if not part.metric.startswith("stack.") else side.runs
    value = value_of(usable, part.metric, part.statistic, part.runs)
    about = f"{side.name}: {show_number(value)}, expected {wanted}"
    if value is None or len(usable) < part.runs:
        return Outcome(None, about, {side.name: (0 if value is None else len(usable), part.runs)})
    return Outcome("yes" if holds(value) else "no", about, {side.name: (len(usable), part.runs)})


def _enough(part: ClaimPart, left: Side, right: Side) -> bool:
    return min(len(left.runs), len(right.runs)) >= part.runs


def _needs(part: ClaimPart, *sides: Side) -> dict[str, tuple[int, int]]:
    return {side.name: (len(side.counted), part.runs) for side in sides}


def _undecided(part: ClaimPart, left: Side, right: Side, about: str) -> Outcome:
    return Outcome(None, about, _needs(part, left, right))


def _correlated(part: ClaimPart, x: list[float], y: list[float], what: str) -> Outcome:
    needs = {what: (len(x), ENOUGH_TO_CORRELATE)}
    if len(x) < ENOUGH_TO_CORRELATE or len(set(x)) < 2 or len(set(y)) < 2:
        return Outcome(None, f"{what}: {len(x)} values", needs)
    r = float(np.corrcoef(x, y)[0, 1])
    about = f"{what}: r = {r:.2f}, {len(x)} values"
    if abs(r) < part.threshold:
        return Outcome("yes", about, needs)
    significant = abs(r) > 1 - 1e-12 or math.atanh(abs(r)) * math.sqrt(len(x) - 3) > TWO_SIDED
    return Outcome("no" if significant else "differs", about, needs)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
