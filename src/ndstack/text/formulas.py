"""The formulas of syntactic-generalization suites (section 7.3.2): predictions about surprisals.

    formula    = conjunction { "|" conjunction }
    conjunction = comparison { "&" comparison }
    comparison = sum [ ( "<" | ">" | "=" ) sum ]
    sum        = term { ( "+" | "-" ) term }
    term       = number | "-" term | region | "(" formula ")" | "[" formula "]"
    region     = "(" ( integer | "*" ) ";" "%" condition "%" ")"

A region stands for the surprisal of that part of a sentence in that condition, and `*` for that of the whole
sentence.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from ndstack.errors import NdstackError

TOLERANCE = 1e-5
"""Surprisals that differ by no more than this, in bits, count as equal."""

Lookup = Callable[[int | None, str], float]
"""A function that returns the surprisal of a region (None for the whole sentence) in a condition."""


class FormulaError(NdstackError):
    """A formula that cannot be read."""


@dataclasses.dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclasses.dataclass(frozen=True)
class Region:
    """A region `(5;%condition%)`, or `(*;%condition%)`, whose number is None."""

    number: int | None
    condition: str


@dataclasses.dataclass(frozen=True)
class Operation:
    """Two formulas with one of the signs + - < > = & | between them."""

    sign: str
    left: Formula
    right: Formula

    @property
    def is_claim(self) -> bool:
        """Whether the formula is true or false, and not a number."""
        return self.sign not in "+-"


Formula = Number | Region | Operation

_TOKEN = re.compile(
    r"\s*(?:(?P<region>\(\s*(?P<number>\d{1,9}|\*)\s*;\s*%(?P<condition>[^%]+)%\s*\))"
    r"|(?P<constant>\d+(?:\.\d*)?|\.\d+)|(?P<sign>[-+<>=&|()\[\]])|(?P<end>$))"
)
_LEVELS = ("|", "&", "<>=", "+-")
_CLOSING = {"(": ")", "[": "]"}
_MOST_SIGNS = 200
"""The largest number of signs and brackets, because formulas are parsed and evaluated recursively."""


def parse_formula(text: str) -> Operation:
    """Parse a formula that is true or false."""
    parser = _Parser(text)
    formula = parser.level(0)
    if parser.sign or parser.value is not None:
        parser.fail("expected the end of the formula")
    if not isinstance(formula, Operation) or not formula.is_claim:
        raise FormulaError(f"{text!r} is a number, expected a comparison such as (5;%a%) < (5;%b%)")
    return formula


def conjuncts(formula: Formula) -> list[Formula]:
    """Return the parts of a conjunction; a formula that is not a conjunction has itself as its only part."""
    if isinstance(formula, Operation) and formula.sign == "&":
        return conjuncts(formula.left) + conjuncts(formula.right)
    return [formula]


def regions(formula: Formula) -> Iterator[Region]:
    """Yield all regions that occur in a formula."""
    if isinstance(formula, Region):
        yield formula
    elif isinstance(formula, Operation):
        yield from regions(formula.left)
        yield from regions(formula.right)


def is_true(formula: Formula, lookup: Lookup) -> bool:
    """Return whether a prediction holds."""
    assert isinstance(formula, Operation)
    if formula.sign == "&":
        return is_true(formula.left, lookup) and is_true(formula.right, lookup)
    if formula.sign == "|":
        return is_true(formula.left, lookup) or is_true(formula.right, lookup)
    left, right = numeric_value(formula.left, lookup), numeric_value(formula.right, lookup)
    equal = left == right or abs(left - right) <= TOLERANCE
    if formula.sign == "=":
        return equal
    return not equal and (left < right if formula.sign == "<" else left > right)


def numeric_value(formula: Formula, lookup: Lookup) -> float:
    """Return the number that a sum stands for."""
    if isinstance(formula, Number):
        return formula.value
    if isinstance(formula, Region):
        return lookup(formula.number, formula.condition)
    left, right = numeric_value(formula.left, lookup), numeric_value(formula.right, lookup)
    return left + right if formula.sign == "+" else left - right


class _Parser:
    """A recursive-descent parser with one token of lookahead, which is a sign or a value."""

    def __init__(self, text: str) -> None:
        self.text, self.next = text, 0
        if sum(map(text.count, "+-<>=&|([")) > _MOST_SIGNS:
            raise FormulaError(f"{text[:40]!r}...: more than {_MOST_SIGNS} signs and brackets in one formula")
        self.advance()

    def advance(self) -> None:
        """Read the next token."""
        match = _TOKEN.match(self.text, self.next)
        if match is None:
            rest = self.text[self.next :].lstrip()
            raise FormulaError(f"{self.text!r}: {rest[:20]!r} cannot be part of a formula")
        self.at, self.next = match.end() - len(match.group().lstrip()), match.end()
        self.sign: str = match["sign"] or ""
        self.value: Number | Region | None = None
        if match["region"]:
            number = None if match["number"] == "*" else int(match["number"])
            self.value = Region(number, match["condition"].strip())
        elif match["constant"]:
            self.value = Number(float(match["constant"]))

    def level(self, depth: int) -> Formula:
        """Return a formula whose signs bind at least as tightly as those of this level."""
        if depth == len(_LEVELS):
            return self.term()
        formula = self.level(depth + 1)
        while self.sign and self.sign in _LEVELS[depth]:
            sign, at = self.sign, self.at
            self.advance()
            right = self.level(depth + 1)
            claims = sign in "&|"
            for side in (formula, right):
                if (isinstance(side, Operation) and side.is_claim) != claims:
                    wanted = "comparisons" if claims else "numbers"
                    raise FormulaError(
                        f"{self.text!r}: {sign!r} at character {at + 1} must be between two {wanted}"
                    )
            formula = Operation(sign, formula, right)
        return formula

    def term(self) -> Formula:
        """Return a value, or something in brackets."""
        if self.value is not None:
            value = self.value
            self.advance()
            return value
        if self.sign == "-":
            self.advance()
            return Operation("-", Number(0.0), self.term())
        if self.sign not in _CLOSING or not self.sign:
            self.fail("expected a region such as (5;%condition%), a number or a bracket")
        closing = _CLOSING[self.sign]
        self.advance()
        formula = self.level(0)
        if self.sign != closing:
            self.fail(f"expected {closing!r}")
        self.advance()
        return formula

    def fail(self, expected: str) -> None:
        """Raise an error that names the place."""
        found = repr(self.text[self.at : self.next].strip()) if self.at < len(self.text) else "the end"
        raise FormulaError(f"{self.text!r}: {expected}, got {found} at character {self.at + 1}")
