"""Tables and JSON of the results on syntactic-generalization suites."""

from collections.abc import Mapping, Sequence

from ndstack.cli.output import print_table
from ndstack.text.generalization import SHORT, Averaging, Generalization
from ndstack.text.scoring import ModelScorer


def circuits_as_json(result: Generalization, ways: Sequence[Averaging]) -> dict[str, object]:
    """Return the scores for JSON: overall, by circuit and by suite, for each way of averaging."""
    return {
        way: {
            "score": result.score(way),
            "circuits": result.by_circuit(way),
            "suites": {one.name: one.accuracy(way) for one in result.suites},
        }
        for way in ways
    }


def print_circuits(results: Mapping[str, Generalization], way: Averaging) -> None:
    """Print a table like table 7.2, with a row for each model and a column for each circuit."""
    scores = {name: one.by_circuit(way) for name, one in results.items()}
    names = list(dict.fromkeys(circuit for own in scores.values() for circuit in own))
    counted = sum(one.counts(way) for one in next(iter(results.values())).suites)
    print(f'"{way}" averaging, {counted} suite{"s" * (counted != 1)}')
    rows = []
    for name, own in scores.items():
        values = (results[name].score(way), *(own.get(circuit) for circuit in names))
        rows.append((name, *(None if value is None else f"{value:.3f}" for value in values)))
    print_table(("model", "SG score", *(SHORT.get(name, name) for name in names)), rows, right=1)


def print_suites(name: str, result: Generalization, ways: Sequence[Averaging]) -> None:
    """Print a table with a row for each suite."""
    rows = []
    for one in result.suites:
        shown = (f"{one.accuracy(way):.3f}" + ("" if one.counts(way) else " (not counted)") for way in ways)
        rows.append((one.name, one.circuit or "none", len(one.holds), *shown))
    print_table((name, "circuit", "items", *ways), rows, right=2)


def print_unknown(name: str, scorer: ModelScorer) -> None:
    """Print how many words a model did not know, and the most frequent of them."""
    count, common = scorer.unknown.total(), ", ".join(word for word, _ in scorer.unknown.most_common(8))
    print(f"{name}: {count:,} of {scorer.words:,} words read as <unk>" + (f": {common} ..." if count else ""))
