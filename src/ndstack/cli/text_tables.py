"""How results on syntactic-generalization suites are shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ndstack.text.generalization import SHORT, Averaging, Generalization


def circuits(result: Generalization, ways: Sequence[Averaging]) -> dict[str, Any]:
    """Scores for JSON: overall, by circuit and by suite, in each way of averaging."""
    return {
        way: {
            "score": result.score(way),
            "circuits": result.by_circuit(way),
            "suites": {one.name: one.accuracy(way) for one in result.suites},
        }
        for way in ways
    }


def print_circuits(results: Mapping[str, Generalization], way: Averaging) -> None:
    """A table like 7.2: a row for each model, a column for each circuit."""
    scores = {name: one.by_circuit(way) for name, one in results.items()}
    names = list(dict.fromkeys(circuit for own in scores.values() for circuit in own))
    counted = sum(one.counts(way) for one in next(iter(results.values())).suites)
    table = Table("model", "SG score", *(SHORT.get(name, name) for name in names), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, own in scores.items():
        score = results[name].score(way)
        shown = [own.get(circuit) for circuit in names]
        table.add_row(name, *("-" if value is None else f"{value:.3f}" for value in (score, *shown)))
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(f'"{way}" averaging, {counted} suite{"s" * (counted != 1)}')
    console.print(table)


def print_suites(name: str, result: Generalization, ways: Sequence[Averaging]) -> None:
    """A row for each suite."""
    table = Table(name, "circuit", "items", *ways, box=None)
    for column in table.columns[2:]:
        column.justify = "right"
    for one in result.suites:
        shown = (f"{one.accuracy(way):.3f}" + ("" if one.counts(way) else " (not counted)") for way in ways)
        table.add_row(one.name, one.circuit or "none", str(len(one.holds)), *shown)
    Console(markup=False, highlight=False, emoji=False).print(table)
