"""What runs say, and what they cannot say because they were cut short.

A run *counts* if it has solved its language, or if it ended by the recipe's own rule: no improvement for 10
epochs (2 on text), or all 200 (100) epochs. A run that was ended earlier, while it might still have improved,
counts as a success if it has succeeded, and otherwise as nothing.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from ndstack.errors import NdstackError
from ndstack.experiments.claims.claim import RunStatistic
from ndstack.experiments.results import Finished
from ndstack.experiments.trials import Setting

SOLVED = 0.05
"""Nats per symbol above the lower bound, on validation strings of 40 to 80 symbols."""
PATIENCE, TEXT_PATIENCE = 10, 2
EPOCHS, TEXT_EPOCHS = 200, 100
FAR = 2 * SOLVED
"""A model none of whose runs came nearer than this is not a model that had bad luck."""
LONGEST_SEEN, LONGEST_TESTED = 80, 100
"""Lengths of the dissertation's training and test sets; longer test strings of ours are no part of claims."""
CONVERGED_WITHIN = 0.01
"""A run has converged in the first epoch that is within so many nats of its best one."""


@dataclasses.dataclass(frozen=True)
class Side:
    """The runs of one model on one language."""

    label: str
    language: str
    runs: tuple[Finished, ...]

    @property
    def name(self) -> str:
        """For tables and pictures."""
        return f"{self.label}, {self.language}" if self.language else self.label

    @property
    def counted(self) -> tuple[Finished, ...]:
        """Those that say something about what the model can learn."""
        return tuple(one for one in self.runs if is_solved(one) or is_settled(one))

    @property
    def settled(self) -> tuple[Finished, ...]:
        """Those that would not have improved by the recipe's own rule."""
        return tuple(one for one in self.runs if is_settled(one))

    @property
    def solved(self) -> tuple[Finished, ...]:
        """Those that have learned the language."""
        return tuple(one for one in self.runs if is_solved(one))

    def usable(self, least: int) -> tuple[Finished, ...]:
        """Those that are compared: none that were cut short, if there are enough others."""
        return self.counted if len(self.settled) >= least else self.runs


def is_solved(one: Finished) -> bool:
    """Whether a run has learned its language; on text there is no such thing."""
    return one.record.difference is not None and one.record.difference < SOLVED


def is_settled(one: Finished) -> bool:
    """Whether a run ended by the recipe's own rule."""
    patience, epochs = (TEXT_PATIENCE, TEXT_EPOCHS) if one.record.is_text else (PATIENCE, EPOCHS)
    return one.record.waited >= patience or len(one.differences) >= epochs


def metric_of(one: Finished, metric: str) -> float | None:
    """A number of a run; None if it was not measured.

    difference: on the validation set. test, test_short, test_long: on test strings of all lengths, of up to
    80 symbols, of 81 to 100. gap: test_long less test_short. epochs_to_solve, epochs_to_converge.
    processor_seconds: of the median epoch. perplexity, test_perplexity, sg_score. size: states times stack
    symbols. stack.NAME, circuit.NAME.
    """
    record = one.record
    if metric.startswith("stack."):
        return record.stack_measures.get(metric.removeprefix("stack."))
    if metric.startswith("circuit."):
        return record.circuits.get(metric.removeprefix("circuit."))
    plain: dict[str, float | None] = {
        "difference": record.difference,
        "test": record.test_difference,
        "perplexity": record.perplexity,
        "test_perplexity": record.test_perplexity,
        "sg_score": record.sg_score,
    }
    if metric in plain:
        return plain[metric]
    makers: dict[str, Callable[[], float | None]] = {
        "test_short": lambda: _test(one, 0, LONGEST_SEEN),
        "test_long": lambda: _test(one, LONGEST_SEEN + 1, LONGEST_TESTED),
        "gap": lambda: _gap(one),
        "epochs_to_solve": lambda: _first(one, SOLVED) if is_solved(one) else math.inf,
        "epochs_to_converge": lambda: _first(one, one.score + CONVERGED_WITHIN),
        "processor_seconds": lambda: _processor_seconds(one),
        "size": lambda: _size(record.model),
    }
    if metric not in makers:
        raise NdstackError(f"there is no metric {metric!r}; there are {', '.join([*plain, *makers])}")
    return makers[metric]()


def _test(one: Finished, low: int, high: int) -> float | None:
    values = [value for length, value in one.test.items() if low <= length <= high]
    return statistics.fmean(values) if values else None


def _gap(one: Finished) -> float | None:
    long, short = _test(one, LONGEST_SEEN + 1, LONGEST_TESTED), _test(one, 0, LONGEST_SEEN)
    return None if long is None or short is None else long - short


def _processor_seconds(one: Finished) -> float | None:
    """Of the median epoch, which does not know of compiling; runs on more than one thread do not count."""
    known = [epoch.processor_seconds for epoch in one.curve if epoch.processor_seconds is not None]
    return statistics.median(known) if known and one.record.threads == 1 else None


def _first(one: Finished, below: float) -> float:
    """The first epoch of the last stage with a lower difference, counted through all stages."""
    differences = one.differences
    before = len(one.curve) - len(differences)
    return next((before + n for n, value in enumerate(differences, 1) if value <= below), math.inf)


def _size(model: str) -> float:
    numbers = [int(part) for part in model.split("-")[1:] if part.isdecimal()]
    return float(math.prod(numbers[:2])) if len(numbers) >= 2 else 0.0


def value_of(runs: Sequence[Finished], metric: str, statistic: RunStatistic, count: int) -> float | None:
    """One number for several runs; None if it was not measured.

    Args:
        runs: of one model on one language.
        metric: of each.
        statistic: best: the expected value of the best of `count` of the runs, drawn by chance, so that the
            side with more runs has no advantage; of metrics by which runs are not selected, that of the run
            that is best by validation. mean: of the setting whose mean is lowest, if a setting has
            three runs or more; else of all.
        count: of the smaller side.
    """
    known = [(one, value) for one in runs for value in [metric_of(one, metric)] if value is not None]
    if not known:
        return None
    if statistic == "best":
        if metric in ("difference", "perplexity"):
            return expected_best([value for _, value in known], count)
        return min(known, key=lambda pair: pair[0].score)[1]
    settings: dict[Setting, list[float]] = {}
    for one, value in known:
        settings.setdefault(one.setting, []).append(value)
    groups = [values for values in settings.values() if len(values) >= 3]
    return min(map(statistics.fmean, groups or [[value for _, value in known]]))


def expected_best(values: Sequence[float], count: int) -> float:
    """The mean, over all ways to choose `count` of the values, of the lowest one chosen."""
    ordered = sorted(values)
    count = max(1, min(count, len(ordered)))
    ways = math.comb(len(ordered), count)
    return (
        sum(value * math.comb(len(ordered) - place - 1, count - 1) for place, value in enumerate(ordered))
        / ways
    )


def show_number(value: float | None) -> str:
    """A number with the digits that matter."""
    if value is None:
        return "not measured"
    if math.isinf(value):
        return "never"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def describe(side: Side, metric: str) -> str:
    """Our numbers with their spread: best, mean and deviation, how many runs, how many of them solved it."""
    values = [value for one in side.runs for value in [metric_of(one, metric)] if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    if not values:
        return f"{side.name}: no runs" if not side.runs else f"{side.name}: not measured"
    text = f"{side.name}: {show_number(min(values))}"
    if len(finite) > 1:
        text += f" (mean {show_number(statistics.fmean(finite))} ± {show_number(statistics.stdev(finite))})"
    text += f", {len(values)} run{'s' * (len(values) > 1)}"
    if metric == "difference":
        text += f", {len(side.solved)} solved"
    short = len(side.runs) - len(side.counted)
    return text + (f", {short} cut short" if short else "")
