"""Syntactic generalization (section 7.3.2): how often a model's surprisals agree with a suite's predictions.

Two ways of averaging are in use, and every number here says which one it is:

| | a row | suites that count | chance |
|---|---|---|---|
| "dissertation" | one conjunct of a prediction on one item | all in a circuit (33) | 0.50 |
| "hu" | one whole prediction on one item | the same without fgd-embed3, fgd-embed4 (31) | 0.285 |

The accuracy of a suite is the share of its rows that are true. The SG score is the mean over suites, and the
score of a circuit is the mean over its suites. If a suite has several predictions, the first one counts: in
the only known case, fgd_hierarchy, the second prediction contradicts the first.
"""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from ndstack.grammars.graphs import grouped
from ndstack.progress import Advance, no_progress
from ndstack.text.formulas import conjuncts, is_true
from ndstack.text.scoring import Scorer, checked
from ndstack.text.suites import Condition, Metric, Suite

Averaging = Literal["dissertation", "hu"]
AVERAGINGS: tuple[Averaging, ...] = get_args(Averaging)

CIRCUITS: dict[str, tuple[str, ...]] = {
    "Agreement": ("number",),
    "Licensing": ("npi", "reflexive"),
    "Garden-Path Effects": ("mvrr", "npz"),
    "Gross Syntactic Expectation": ("subordination",),
    "Center Embedding": ("center",),
    "Long-Distance Dependencies": ("fgd", "cleft"),
}
"""The prefixes of the names of the suites of Hu et al. (2020), by circuit."""

SHORT = {
    "Agreement": "Agr.",
    "Licensing": "Lic.",
    "Garden-Path Effects": "GPE",
    "Gross Syntactic Expectation": "GSE",
    "Center Embedding": "CE",
    "Long-Distance Dependencies": "LDD",
}
"""The abbreviations of table 7.2."""

STUBS = ("nn-nv-rpl",)
"""Suites of one item, which belong to no circuit."""

LEFT_OUT = ("fgd-embed3", "fgd-embed4")
"""Suites that Hu et al. do not include in their average."""

_METRICS: dict[Metric, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "mean": statistics.fmean,
    "median": statistics.median,
    "range": lambda values: max(values) - min(values),
    "max": max,
    "min": min,
}


@dataclasses.dataclass(frozen=True)
class SuiteResult:
    """The results of a scorer on one suite.

    Attributes:
        name: the name of the suite.
        circuit: the circuit to which the suite belongs; None if it does not count.
        truths: for each item, whether each conjunct of the prediction holds.
        holds: for each item, whether the prediction holds.
    """

    name: str
    circuit: str | None
    truths: tuple[tuple[bool, ...], ...]
    holds: tuple[bool, ...]

    def accuracy(self, averaging: Averaging) -> float:
        """Return the share of rows that are true."""
        rows = self.holds if averaging == "hu" else [row for item in self.truths for row in item]
        return sum(rows) / len(rows)

    def counts(self, averaging: Averaging) -> bool:
        """Return whether the suite is part of the SG score."""
        return self.circuit is not None and not (averaging == "hu" and self.name in LEFT_OUT)


@dataclasses.dataclass(frozen=True)
class Generalization:
    """The results of a scorer on several suites."""

    suites: tuple[SuiteResult, ...]

    def score(self, averaging: Averaging = "dissertation") -> float | None:
        """Return the SG score, which is the mean over the suites that count; None if there are none."""
        found = [one.accuracy(averaging) for one in self.suites if one.counts(averaging)]
        return _mean(found) if found else None

    def by_circuit(self, averaging: Averaging = "dissertation") -> dict[str, float]:
        """Return the mean over the suites of each circuit: first those of table 7.2, then others."""
        found = grouped((one for one in self.suites if one.counts(averaging)), lambda one: one.circuit)
        order = [
            *(name for name in CIRCUITS if name in found),
            *(name for name in found if name not in CIRCUITS),
        ]
        return {str(name): _mean([one.accuracy(averaging) for one in found[name]]) for name in order}


def evaluate_suites(
    suites: Sequence[Suite], scorer: Scorer, *, progress: Advance = no_progress
) -> Generalization:
    """Score the sentences of suites and check their predictions.

    Args:
        suites: suites from `read_suite`.
        scorer: `ModelScorer(model)`, or any function from sentences to surprisals in bits.
        progress: a function that is called with the number of sentences scored since the last call.
    """
    results = []
    for suite in suites:
        sentences = suite.sentences
        results.append(judge(suite, checked(scorer, sentences)))
        progress(len(sentences))
    return Generalization(tuple(results))


def judge(suite: Suite, surprisals: Sequence[Sequence[float]]) -> SuiteResult:
    """Check the first prediction of a suite, given the surprisals of the words of `suite.sentences`."""
    formula = suite.predictions[0].parsed
    rows, truths, holds = iter(surprisals), [], []
    for item in suite.items:
        values: dict[tuple[int | None, str], float] = {}
        for condition in item.conditions:
            values |= _by_region(condition, next(rows), suite.meta.metric)
        lookup = functools.partial(_look_up, values)
        truths.append(tuple(is_true(part, lookup) for part in conjuncts(formula)))
        holds.append(is_true(formula, lookup))
    return SuiteResult(suite.meta.name, circuit_of(suite), tuple(truths), tuple(holds))


def circuit_of(suite: Suite) -> str | None:
    """Return the circuit of a suite: "Other" if neither the suite nor its name says it, None for a stub."""
    name = suite.meta.name
    if name in STUBS:
        return None
    for circuit, prefixes in CIRCUITS.items():
        if any(name == prefix or name.startswith((f"{prefix}_", f"{prefix}-")) for prefix in prefixes):
            return suite.meta.circuit or circuit
    return suite.meta.circuit or "Other"


def _look_up(values: dict[tuple[int | None, str], float], region: int | None, condition: str) -> float:
    return values[region, condition]


def _by_region(
    condition: Condition, surprisals: Sequence[float], metric: Metric
) -> dict[tuple[int | None, str], float]:
    """Return the combined surprisal of each region, and of the whole sentence."""
    name, combine = condition.condition_name, _METRICS[metric]
    values: dict[tuple[int | None, str], float] = {(None, name): combine(surprisals) if surprisals else 0.0}
    first = 0
    for region in condition.regions:
        own = surprisals[first : first + len(region.words)]
        first += len(region.words)
        values[region.region_number, name] = combine(own) if own else 0.0
    return values


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
