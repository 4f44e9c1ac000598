"""Syntactic generalization (section 7.3.2): how often a model's surprisals are as the suites predict.

Two ways to average are in use, and every number here says which it is:

| | a row | suites that count | chance |
|---|---|---|---|
| "dissertation" | one conjunct of a prediction on one item | all in a circuit (33) | 0.50 |
| "hu" | one prediction, all of it, on one item | the same without fgd-embed3, fgd-embed4 (31) | 0.285 |

The accuracy of a suite is its share of rows that are true; the SG score is the plain mean over suites, and
that of a circuit the mean over its suites. Where a suite has several predictions, the first counts: the one
known case, fgd_hierarchy, has a second that demands equality of what the first demands to differ.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, get_args

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
"""The first parts of the names of the suites of Hu et al. (2020)."""

SHORT = {
    "Agreement": "Agr.",
    "Licensing": "Lic.",
    "Garden-Path Effects": "GPE",
    "Gross Syntactic Expectation": "GSE",
    "Center Embedding": "CE",
    "Long-Distance Dependencies": "LDD",
}
"""As in table 7.2."""

STUBS = ("nn-nv-rpl",)
"""In no circuit: one item."""

LEFT_OUT = ("fgd-embed3", "fgd-embed4")
"""Not among the suites that Hu et al. average."""

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
    """What a scorer did on one suite.

    Attributes:
        name: of the suite.
        circuit: it belongs to; None if it does not count.
        truths: for each item, whether each conjunct of the prediction holds.
        holds: for each item, whether the prediction holds.
    """

    name: str
    circuit: str | None
    truths: tuple[tuple[bool, ...], ...]
    holds: tuple[bool, ...]

    def accuracy(self, averaging: Averaging) -> float:
        """The share of rows that are true."""
        rows = self.holds if averaging == "hu" else [row for item in self.truths for row in item]
        return sum(rows) / len(rows)

    def counts(self, averaging: Averaging) -> bool:
        """Whether the suite is part of the SG score."""
        return self.circuit is not None and not (averaging == "hu" and self.name in LEFT_OUT)


@dataclasses.dataclass(frozen=True)
class Generalization:
    """What a scorer did on several suites."""

    suites: tuple[SuiteResult, ...]

    def score(self, averaging: Averaging = "dissertation") -> float | None:
        """The SG score: the mean over the suites that count; None if there are none."""
        return _mean([one.accuracy(averaging) for one in self.suites if one.counts(averaging)])

    def by_circuit(self, averaging: Averaging = "dissertation") -> dict[str, float]:
        """The mean over the suites of each circuit, in the order of table 7.2, others after them."""
        found = dict.fromkeys(one.circuit for one in self.suites if one.circuit is not None)
        order = [
            *(name for name in CIRCUITS if name in found),
            *(name for name in found if name not in CIRCUITS),
        ]
        means = {
            circuit: _mean(
                [
                    one.accuracy(averaging)
                    for one in self.suites
                    if one.circuit == circuit and one.counts(averaging)
                ]
            )
            for circuit in order
        }
        return {circuit: value for circuit, value in means.items() if value is not None}


def evaluate_suites(
    suites: Sequence[Suite], scorer: Scorer, *, progress: Advance = no_progress
) -> Generalization:
    """Score the sentences of suites and check their predictions.

    Args:
        suites: from `read_suite`.
        scorer: sentences to surprisals in bits; `ModelScorer(model)`, or any function.
        progress: called with the number of sentences scored since the last call.
    """
    results = []
    for suite in suites:
        sentences = suite.sentences
        results.append(judge(suite, checked(scorer, sentences)))
        progress(len(sentences))
    return Generalization(tuple(results))


def judge(suite: Suite, surprisals: Sequence[Sequence[float]]) -> SuiteResult:
    """Check the first prediction of a suite.

    Args:
        suite: the suite.
        surprisals: of the words of `suite.sentences`.
    """
    formula = suite.predictions[0].parsed
    rows, truths, holds = iter(surprisals), [], []
    for item in suite.items:
        values: dict[tuple[int | None, str], float] = {}
        for condition in item.conditions:
            values |= _by_region(condition, next(rows), suite.meta.metric)

        def lookup(
            region: int | None, condition: str, values: dict[tuple[int | None, str], float] = values
        ) -> float:
            return values[region, condition]

        truths.append(tuple(is_true(part, lookup) for part in conjuncts(formula)))
        holds.append(is_true(formula, lookup))
    return SuiteResult(suite.meta.name, circuit_of(suite), tuple(truths), tuple(holds))


def circuit_of(suite: Suite) -> str | None:
    """The circuit of a suite; "Other" if neither the suite nor its name says, None for a stub."""
    name = suite.meta.name
    if name in STUBS:
        return None
    for circuit, prefixes in CIRCUITS.items():
        if any(name == prefix or name.startswith((f"{prefix}_", f"{prefix}-")) for prefix in prefixes):
            return suite.meta.circuit or circuit
    return suite.meta.circuit or "Other"


def _by_region(
    condition: Condition, surprisals: Sequence[float], metric: Metric
) -> dict[tuple[int | None, str], float]:
    """The number of each region, and of the whole sentence."""
    name, combine = condition.condition_name, _METRICS[metric]
    values: dict[tuple[int | None, str], float] = {(None, name): combine(surprisals) if surprisals else 0.0}
    first = 0
    for region in condition.regions:
        own = surprisals[first : first + len(region.words)]
        first += len(region.words)
        values[region.region_number, name] = combine(own) if own else 0.0
    return values


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
