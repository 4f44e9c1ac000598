"""The runs that count as evidence, and the numbers by which claims are decided.

A run *counts* if it has solved its language, or if it ended by the recipe's own rule: no improvement for 10
epochs (2 on text), or all 200 (100) epochs. A run that ended earlier without success, while it might still
have improved, does not count.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from ndstack.errors import NdstackError
from ndstack.experiments.claims.claim import RunStatistic
from ndstack.experiments.results import Finished
from ndstack.grammars.graphs import grouped

SOLVED = 0.05
"""The difference to the lower bound, in nats per symbol, below which a run has solved its language."""
PATIENCE, TEXT_PATIENCE = 10, 2
EPOCHS, TEXT_EPOCHS = 200, 100
FAR = 2 * SOLVED
"""If the differences of all runs of a model are above this, it fails even with few runs."""
LONGEST_SEEN, LONGEST_TESTED = 80, 100
"""The longest strings of the dissertation's training and test sets; longer test strings do not count."""
CONVERGED_WITHIN = 0.01
"""A run has converged in the first epoch whose difference is within this distance of the best, in nats."""


@dataclasses.dataclass(frozen=True)
class Side:
    """The runs of one model on one language."""

    label: str
    language: str
    runs: tuple[Finished, ...]

    @property
    def name(self) -> str:
        """The name of the side in tables and pictures."""
        return f"{self.label}, {self.language}" if self.language else self.label

    @property
    def counted(self) -> tuple[Finished, ...]:
        """The runs that count."""
        return tuple(one for one in self.runs if is_solved(one) or is_settled(one))

    @property
    def settled(self) -> tuple[Finished, ...]:
        """The runs that ended by the recipe's own rule."""
        return tuple(one for one in self.runs if is_settled(one))

    @property
    def solved(self) -> tuple[Finished, ...]:
        """The runs that have solved the language."""
        return tuple(one for one in self.runs if is_solved(one))

    def usable(self, least: int) -> tuple[Finished, ...]:
        """Return the runs to compare: only those that count, if at least this number ended by the rule."""
        return self.counted if len(self.settled) >= least else self.runs


def is_solved(one: Finished) -> bool:
    """Return whether a run has solved its language, which is never the case on text."""
    return one.record.difference is not None and one.record.difference < SOLVED


def is_settled(one: Finished) -> bool:
    """Return whether a run ended by the recipe's own rule."""
    patience, epochs = (TEXT_PATIENCE, TEXT_EPOCHS) if one.record.is_text else (PATIENCE, EPOCHS)
    return one.record.waited >= patience or len(one.differences) >= epochs


def metric_of(one: Finished, metric: str) -> float | None:
    """Return a number of a run; None if it was not measured.

    | metric | number |
    |---|---|
    | difference | the cross-entropy difference on the validation set |
    | test, test_short, test_long | on test strings of all lengths, of up to 80 symbols, of 81 to 100 |
    | gap | test_long minus test_short |
    | epochs_to_solve, epochs_to_converge | the number of the epoch |
    | processor_seconds | the processor time of the median epoch |
    | perplexity, test_perplexity, sg_score | on text |
    | size | the number of states times that of stack symbols |
    | stack.NAME, circuit.NAME | a measure of the stack, the score of a circuit |
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
    """Return the processor time of the median epoch, in which nothing is compiled; None with more threads."""
    known = [epoch.processor_seconds for epoch in one.curve if epoch.processor_seconds is not None]
    return statistics.median(known) if known and one.record.threads == 1 else None


def _first(one: Finished, below: float) -> float:
    """Return the number of the first epoch of the last stage that is no greater than a difference."""
    differences = one.differences
    before = len(one.curve) - len(differences)
    return next((before + n for n, value in enumerate(differences, 1) if value <= below), math.inf)


def _size(model: str) -> float:
    numbers = [int(part) for part in model.split("-")[1:] if part.isdecimal()]
    return float(math.prod(numbers[:2])) if len(numbers) >= 2 else 0.0


def value_of(runs: Sequence[Finished], metric: str, statistic: RunStatistic, count: int) -> float | None:
    """Return one number for several runs; None if it was not measured.

    Args:
        runs: the runs of one model on one language.
        metric: the number of each run.
        statistic: "best" is the expected best of `count` of the runs, chosen at random, so that the side with
            more runs has no advantage; for metrics by which runs are not selected, it is the number of the
            run that is best by validation. "mean" is the lowest mean over a setting with at least three runs
            or, if there is none, the mean of all.
        count: the number of runs of the smaller side.
    """
    known = [(one, value) for one in runs for value in [metric_of(one, metric)] if value is not None]
    if not known:
        return None
    if statistic == "best":
        if metric in ("difference", "perplexity"):
            return expected_best([value for _, value in known], count)
        return min(known, key=lambda pair: pair[0].score)[1]
    groups = [group for group in grouped(known, lambda pair: pair[0].setting).values() if len(group) >= 3]
    return min(statistics.fmean(value for _, value in group) for group in groups or [known])


def expected_best(values: Sequence[float], count: int) -> float:
    """Return the mean of the lowest of `count` values over all ways to choose them."""
    ordered, n = sorted(values), len(values)
    count = max(1, min(count, n))
    ways = [math.comb(n - place - 1, count - 1) for place in range(n)]  # in which this value is the lowest
    return sum(value * way for value, way in zip(ordered, ways, strict=True)) / math.comb(n, count)


def show_number(value: float | None) -> str:
    """Return a number as text, rounded."""
    if value is None:
        return "not measured"
    if math.isinf(value):
        return "never"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def describe(side: Side, metric: str) -> str:
    """Return our numbers as text: best, mean and deviation, the number of runs, how many solved it."""
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
