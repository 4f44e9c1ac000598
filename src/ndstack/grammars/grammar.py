"""Context-free grammars as immutable, checked values (section 2.3.4).

A `CFG` is a set of rules, a `WeightedCFG` gives each rule a weight >= 0, and in a `PCFG` the weights of the
rules of each nonterminal sum to 1. Rules of weight 0 are dropped; equal rules are merged and their weights
added.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from ndstack.errors import GrammarError
from ndstack.grammars.graphs import grouped, reachable_from
from ndstack.html_tables import table

SUM_TOLERANCE = 1e-9
"""Probabilities whose sum differs from 1 by no more are rescaled; a larger difference is an error."""


@dataclass(frozen=True, slots=True, order=True)
class Nonterminal:
    """A variable of a grammar. Terminals are plain strings."""

    name: str

    def __str__(self) -> str:
        return self.name


Symbol = Nonterminal | str
"""A nonterminal or a terminal."""
Word = str | tuple[str, ...]
"""A string over an alphabet: a tuple of symbols, or a `str` where every symbol is one character."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A production `left -> right` with its weight (1 in a grammar without weights)."""

    left: Nonterminal
    right: tuple[Symbol, ...]
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{self.left} -> {' '.join(map(show_symbol, self.right))}".rstrip()

    @property
    def variables(self) -> tuple[Nonterminal, ...]:
        """The nonterminals of the right side, in order."""
        return tuple(symbol for symbol in self.right if isinstance(symbol, Nonterminal))


def show_symbol(symbol: Symbol) -> str:
    """Return a symbol in NLTK's notation, in which terminals are quoted."""
    if isinstance(symbol, Nonterminal):
        return symbol.name
    return f'"{symbol}"' if "'" in symbol else f"'{symbol}'"


@dataclass(frozen=True)
class CFG:
    """A context-free grammar (V, Σ, R, S), where V and Σ are the symbols that occur in the rules."""

    rules: tuple[Rule, ...]
    start: Nonterminal
    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for rule in self.rules:
            _check_rule(rule, weighted=self.weighted)
        object.__setattr__(self, "rules", tuple(self._merge(self.rules)))
        self._check()

    @classmethod
    def fromstring(cls, text: str) -> Self:
        """Read NLTK's notation; the first rule's left side is the start variable."""
        from ndstack.grammars.notation import parse_rules

        rules, start = parse_rules(text, weighted=cls.weighted)
        return cls(tuple(rules), start)

    def __str__(self) -> str:
        from ndstack.grammars.notation import format_rules

        return format_rules(self)

    def _repr_html_(self) -> str:
        rows = [
            (A.name, " | ".join(self._alternative(rule) for rule in self.rules_for(A)))
            for A in self.nonterminals
        ]
        kind = {True: "weighted grammar", False: "grammar"}[self.weighted]
        return table(rows, ("", "rules"), f"{kind} with start variable {self.start}")

    def _alternative(self, rule: Rule) -> str:
        """Return the right side of a rule, with its weight if the grammar has weights."""
        right = " ".join(map(show_symbol, rule.right)) or "ε"
        return f"{right} [{rule.weight:.5g}]" if self.weighted else right

    @cached_property
    def nonterminals(self) -> tuple[Nonterminal, ...]:
        """V in order of appearance, the start variable first."""
        return tuple(dict.fromkeys([self.start, *(rule.left for rule in self.rules)]))

    @cached_property
    def terminals(self) -> tuple[str, ...]:
        """Σ in order of appearance."""
        return tuple(dict.fromkeys(s for rule in self.rules for s in rule.right if isinstance(s, str)))

    @cached_property
    def _by_left(self) -> dict[Nonterminal, tuple[Rule, ...]]:
        return {left: tuple(own) for left, own in grouped(self.rules, lambda rule: rule.left).items()}

    def rules_for(self, left: Nonterminal) -> tuple[Rule, ...]:
        """Return the rules with this left side."""
        return self._by_left.get(left, ())

    def start_is_isolated(self) -> bool:
        """Return whether the start variable occurs on no right side."""
        return all(self.start not in rule.right for rule in self.rules)

    def _merge(self, rules: Iterable[Rule]) -> Iterator[Rule]:
        merged: dict[tuple[Nonterminal, tuple[Symbol, ...]], Rule] = {}
        for rule in rules:
            key = (rule.left, rule.right)
            if rule.weight == 0:
                continue
            if self.weighted and key in merged:
                rule = replace(rule, weight=merged[key].weight + rule.weight)
            merged[key] = rule
        return iter(merged.values())

    def _check(self) -> None:
        if not self.rules:
            raise GrammarError("the grammar has no rules; write at least one, such as S -> 'a' S 'b' | 'c'")
        for rule in self.rules:
            for symbol in rule.right:
                if isinstance(symbol, Nonterminal) and symbol not in self._by_left:
                    advice = f"define it, or quote it if it is a terminal: '{symbol}'"
                    if symbol.name in ("ε", "epsilon"):
                        advice = "leave the right side empty for the empty string"
                    raise GrammarError(f"rule {rule}: nonterminal {symbol} has no rules; {advice}")
        if self.start not in self._by_left:
            raise GrammarError(f"the start variable {self.start} has no rules")
        self._check_useful()

    def _check_useful(self) -> None:
        reached = reachable(self.rules, self.start)
        derives = productive(self.rules)
        for rule in self.rules:
            if rule.left not in reached:
                raise GrammarError(
                    f"rule {rule}: {rule.left} cannot be reached from the start variable "
                    f"{self.start}; use it in a rule or remove it"
                )
            if rule.left not in derives:
                raise GrammarError(
                    f"rule {rule}: {rule.left} derives no string of terminals, because no derivation from it "
                    f"ends; add a rule for {rule.left} without recursion"
                )


@dataclass(frozen=True)
class WeightedCFG(CFG):
    """A grammar in which the weight of a derivation is the product of the weights of its rules."""

    weighted: ClassVar[bool] = True


@dataclass(frozen=True)
class PCFG(WeightedCFG):
    """A probabilistic grammar: the weights of each nonterminal's rules sum to 1."""

    def _check(self) -> None:
        super()._check()
        totals = {A: math.fsum(rule.weight for rule in own) for A, own in self._by_left.items()}
        for left, total in totals.items():
            if abs(total - 1) > SUM_TOLERANCE:
                last = self._by_left[left][-1]
                raise GrammarError(
                    f"the probabilities of the rules of {left} sum to {total:.12g} instead of 1 "
                    f"(last rule: {last} [{last.weight:g}]); fractions such as [1/3] are allowed"
                )
        if any(abs(total - 1) > 1e-12 for total in totals.values()):
            exact = tuple(replace(r, weight=r.weight / totals[r.left]) for r in self.rules)
            object.__setattr__(self, "rules", exact)
            del self.__dict__["_by_left"]


def _check_rule(rule: Rule, *, weighted: bool) -> None:
    if type(rule.right) is not tuple or "" in rule.right:
        raise GrammarError(
            f"rule {rule.left} -> {rule.right!r}: a right side is a tuple of nonterminals and non-empty "
            "strings, () for ε"
        )
    if math.isnan(rule.weight) or rule.weight < 0 or math.isinf(rule.weight):
        raise GrammarError(f"rule {rule} has weight {rule.weight:g}; weights are finite numbers, 0 or more")
    if not weighted and rule.weight != 1:
        raise GrammarError(
            f"rule {rule} has weight {rule.weight:g} in a grammar without weights; use PCFG or WeightedCFG"
        )


def reachable(rules: Iterable[Rule], start: Nonterminal) -> set[Nonterminal]:
    """Return the nonterminals that occur in some sentential form derived from `start`."""
    below = grouped(rules, lambda rule: rule.left)
    return set(reachable_from([start], lambda A: (B for rule in below.get(A, ()) for B in rule.variables)))


def productive(rules: Iterable[Rule]) -> set[Nonterminal]:
    """Return the nonterminals that derive at least one string of terminals."""
    rules = list(rules)
    found: set[Nonterminal] = set()
    while True:
        new = {rule.left for rule in rules if rule.left not in found and found.issuperset(rule.variables)}
        if not new:
            return found
        found |= new


def trim(rules: Iterable[Rule], start: Nonterminal) -> tuple[Rule, ...]:
    """Return the rules that take part in some derivation of a string from `start`."""
    rules = list(rules)
    derives = productive(rules)
    rules = [rule for rule in rules if derives.issuperset((rule.left, *rule.variables))]
    reached = reachable(rules, start)
    return tuple(rule for rule in rules if rule.left in reached)


def fresh_nonterminal(name: str, taken: set[str]) -> Nonterminal:
    """Return a nonterminal called `name`, or `name0`, `name1`, ... if that is taken, and mark it as taken."""
    candidate, number = name, 0
    while candidate in taken:
        candidate, number = f"{name}{number}", number + 1
    taken.add(candidate)
    return Nonterminal(candidate)
