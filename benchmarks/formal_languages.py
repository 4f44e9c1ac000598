"""How fast strings are sampled and weighed: `python -m benchmarks.formal_languages`.

The baselines are the algorithms as section 5.5 prints them (a term for every composition of the length, on
the grammar without ε- and unary rules) and the inside algorithm in log space, both in this repository.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from ndstack.grammars import LengthTable, Nonterminal, WeightedCFG, Word, log_inside, proper
from ndstack.grammars.inside import log_inside_reference
from ndstack.languages import ContextFreeLanguage, get

SAMPLES, WEIGHED = 10_000, 1_000
Row = tuple[str, float, float | None, str]
"""What was done, its seconds, those of the baseline if there is one, and what that is."""

T = TypeVar("T")


def timed(function: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    value = function()
    return value, time.perf_counter() - begin


def table_by_compositions(grammar: WeightedCFG, length: int) -> list[float]:
    """Algorithm 1 of section 5.5 as printed: T[S, ℓ] with every composition of ℓ."""
    clean = proper(grammar)

    @cache
    def total(A: Nonterminal, size: int) -> float:
        weight = 0.0
        for rule in clean.rules_for(A):
            variables = [s for s in rule.right if isinstance(s, Nonterminal)]
            rest = size - (len(rule.right) - len(variables))
            for parts in compositions(len(variables), rest):
                weight += rule.weight * math.prod(total(B, n) for B, n in zip(variables, parts, strict=True))
        return weight

    return [total(clean.start, n) for n in range(1, length + 1)]


def compositions(parts: int, total: int) -> list[tuple[int, ...]]:
    if parts == 0 or total < parts:
        return [()] if parts == total else []
    bounds = combinations(range(1, total), parts - 1)
    return [tuple(b - a for a, b in zip((0, *cut), (*cut, total), strict=True)) for cut in bounds]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    language = get("hardest-cfl")
    assert isinstance(language, ContextFreeLanguage)
    grammar = language.grammar
    log_inside(grammar, "();")  # compile
    rows: list[Row] = []

    short = 40
    _, fast = timed(lambda: LengthTable(grammar).log_weight(short))
    _, slow = timed(lambda: table_by_compositions(grammar, short))
    rows.append((f"table T[A, ℓ] up to ℓ = {short}", fast, slow, "compositions, section 5.5"))

    def sample() -> list[Word]:
        fresh = get("hardest-cfl")
        rng = np.random.default_rng(1)
        lengths = fresh.lengths(40, 80)
        return [fresh.sample(lengths[int(rng.random() * len(lengths))], rng) for _ in range(SAMPLES)]

    words, seconds = timed(sample)
    rows.append((f"{SAMPLES:,} strings of lengths 40..80, table included", seconds, None, ""))
    _, seconds = timed(lambda: [language.log_probability(w) for w in words[:WEIGHED]])
    few = words[:10]
    _, reference = timed(lambda: [log_inside_reference(grammar, w) for w in few])
    rows.append((f"{WEIGHED:,} log-probabilities of these", seconds, reference * WEIGHED / len(few),
                 f"log space in numpy, from {len(few)}"))  # fmt: skip
    show(rows)
    if options.json:
        report = [{"what": w, "seconds": s, "baseline_seconds": b, "baseline": n} for w, s, b, n in rows]
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def show(rows: list[Row]) -> None:
    table = Table("hardest CFL, one core", "seconds", "baseline", "ratio", "baseline is")
    for what, seconds, baseline, name in rows:
        slow = "" if baseline is None else f"{baseline:.2f}"
        ratio = "" if baseline is None else f"{baseline / seconds:,.0f} x"
        table.add_row(what, f"{seconds:.3f}", slow, ratio, name)
    Console().print(table)


if __name__ == "__main__":
    main()
