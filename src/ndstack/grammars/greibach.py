"""Greibach normal form (section 2.3.4) and 2-Greibach normal form (section 4.3, lemma 2).

Left recursion is removed by the left-corner transformation, which keeps the weight of every string and takes
polynomial space. A derivation A → B₁β₁, B₁ → B₂β₂, ..., B → aβ down the left edge is read from its foot, as
A → aβ A/B, where the new nonterminal A/B derives the remainder β_k ... β₁ on the way up from B to A.
Equivalent nonterminals are merged.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

from ndstack.errors import GrammarError
from ndstack.grammars.epsilon_unary_removal import proper
from ndstack.grammars.grammar import CFG, Nonterminal, Rule, Symbol, WeightedCFG, fresh_nonterminal, trim
from ndstack.grammars.graphs import grouped, reachable_from
from ndstack.grammars.reduction import merge_equivalent

Right = tuple[Symbol, ...]
Cut = Literal["rest", "first", "last"]

ASK_THE_GRAMMAR = "`ndstack trees` and `ndstack probability` work on the grammar itself"
"""The advice in errors about grammars that are too large to be compiled."""
MOST_RULES = 30_000
"""The largest number of rules in a normal form; a grammar that needs more is refused beforehand."""


def greibach(grammar: CFG, most: int = MOST_RULES) -> CFG:
    """Return an equivalent grammar in Greibach normal form, in which strings keep their weights.

    Args:
        grammar: any grammar.
        most: the largest number of rules of the result before equivalent nonterminals are merged. A grammar
            that needs more is refused at once.
    """
    grammar = isolate_start(proper(grammar))
    empty = [rule for rule in grammar.rules if not rule.right]
    rules = [rule for rule in grammar.rules if rule.right]
    rules = list(_lift_terminals(_left_corner(rules, grammar.nonterminals, most)))
    return _build(grammar, [*rules, *empty])


def quadratic_greibach(grammar: CFG, cut: Cut = "rest", most: int = MOST_RULES) -> CFG:
    """Return an equivalent grammar with the same weights whose rules are S → ε, A → a, A → aB and A → aBC.

    Right sides are first cut down to a, aX, aXY and XY; then the left-corner transformation is applied. Where
    this leads to three variables, the responsible rule is cut to TY instead, with T → a. If no rule is aX or
    aXY, no right side becomes longer than aBC.

    Args:
        grammar: any grammar.
        cut: how aX₁⋯X_m is cut: "rest" gives aY, "first" gives aX₁Y, "last" gives aYX_m. The resulting
            grammars are equivalent, but differ in size.
        most: the same as in `greibach`.
    """
    grammar = isolate_start(proper(grammar))
    empty = [rule for rule in grammar.rules if not rule.right]
    split: set[Right] = set()
    while True:
        pieces = _Cutter([rule for rule in grammar.rules if rule.right], split, cut)
        binary = list(pieces.rules())
        rules = list(_left_corner(binary, dict.fromkeys(rule.left for rule in binary), most))
        long = [rule.right[:2] for rule in rules if len(rule.right) > 3]
        if not long:
            return _build(grammar, [*rules, *empty])
        split.update(*(pieces.sources[prefix] for prefix in long))


def two_greibach(grammar: CFG) -> CFG:
    """Return an equivalent grammar in 2-Greibach normal form, in which strings keep their weights (lemma 2).

    "for every rule A → aA₁⋯A_m and every rule A₁ → bB₁⋯B_ℓ, substitute the second rule into the first"
    """
    grammar = grammar if is_greibach(grammar) else greibach(grammar)
    size = sum(
        len(grammar.rules_for(A)) for r in grammar.rules for A in r.right[1:2] if not isinstance(A, str)
    )
    if size > MOST_RULES:
        raise GrammarError(
            f"in 2-Greibach normal form the grammar has {size:,} rules, more than the limit of "
            f"{MOST_RULES:,}; use `greibach`"
        )
    rules: list[Rule] = []
    for rule in grammar.rules:
        if len(rule.right) < 2:
            rules.append(rule)
            continue
        terminal, first, *rest = rule.right
        assert isinstance(first, Nonterminal)
        rules += [
            Rule(rule.left, (terminal, *second.right, *rest), rule.weight * second.weight)
            for second in grammar.rules_for(first)
        ]
    return _build(grammar, rules)


def is_greibach(grammar: CFG) -> bool:
    """Return whether S occurs on no right side and every rule is S → ε or A → aB₁⋯B_p."""
    return _has_form(grammar, leading_terminals=(1,))


def is_two_greibach(grammar: CFG) -> bool:
    """Return whether S occurs on no right side and every rule is S → ε, A → a or A → abB₁⋯B_p."""
    return _has_form(grammar, leading_terminals=(1, 2)) and all(
        len(rule.right) < 2 or isinstance(rule.right[1], str) for rule in grammar.rules
    )


def isolate_start(grammar: CFG) -> CFG:
    """Return the same grammar with a start variable that occurs on no right side."""
    if grammar.start_is_isolated():
        return grammar
    start = fresh_nonterminal(grammar.start.name, {A.name for A in grammar.nonterminals})
    copies = [Rule(start, r.right, r.weight) for r in grammar.rules_for(grammar.start)]
    rules = trim([*copies, *grammar.rules], start)
    return type(grammar)(rules, start)


def _has_form(grammar: CFG, leading_terminals: tuple[int, ...]) -> bool:
    def fits(rule: Rule) -> bool:
        if not rule.right:
            return rule.left == grammar.start
        terminals = [isinstance(symbol, str) for symbol in rule.right]
        count = sum(terminals)
        return count in leading_terminals and all(terminals[:count])

    return grammar.start_is_isolated() and all(map(fits, grammar.rules))


def _left_corner(rules: list[Rule], nonterminals: Iterable[Nonterminal], most: int) -> Iterator[Rule]:
    """Yield rules that all begin with a terminal; see the module's docstring."""
    edges = [r for r in rules if isinstance(r.right[0], Nonterminal)]
    feet: dict[Symbol, list[Rule]] = {**grouped((r for r in rules if isinstance(r.right[0], str)), _left)}
    by_first = grouped(edges, lambda r: r.right[0])
    pairs = _left_corners(edges)
    _check_size(pairs, feet, by_first, most)
    taken = {A.name for A in nonterminals}
    names = {(A, B): fresh_nonterminal(f"{A}/{B}", taken) for A, B in pairs}

    begins: dict[Symbol, list[Rule]] = {A: list(own) for A, own in feet.items()}
    for (A, B), remainder in names.items():
        for foot in feet.get(B, ()):
            begins.setdefault(A, []).append(Rule(A, (*foot.right, remainder), foot.weight))
    yield from chain.from_iterable(begins.values())

    for (A, B), remainder in names.items():
        for edge in by_first.get(B, ()):
            ends: list[tuple[Nonterminal, ...]] = [()] if edge.left == A else []
            if (A, edge.left) in names:
                ends.append((names[A, edge.left],))
            for end in ends:
                yield from _begin_with_terminal(remainder, edge, end, begins)


def _check_size(
    pairs: list[tuple[Nonterminal, Nonterminal]],
    feet: dict[Symbol, list[Rule]],
    by_first: dict[Symbol, list[Rule]],
    most: int,
) -> None:
    """Refuse a grammar that would become too large, by counting the rules of `_left_corner` beforehand."""
    begins: dict[Symbol, int] = {A: len(own) for A, own in feet.items()}
    for A, B in pairs:
        begins[A] = begins.get(A, 0) + len(feet.get(B, ()))
    known, size = set(pairs), sum(begins.values())
    for A, B in pairs:
        for edge in by_first.get(B, ()):
            ends = (edge.left == A) + ((A, edge.left) in known)
            size += ends * (1 if isinstance(edge.right[1], str) else begins.get(edge.right[1], 0))
    if size > most:
        raise GrammarError(
            f"in Greibach normal form the grammar has {size:,} rules, more than the limit of {most:,}, so it "
            f"is not compiled into an automaton; {ASK_THE_GRAMMAR}"
        )


def _left(rule: Rule) -> Nonterminal:
    return rule.left


def _begin_with_terminal(
    left: Nonterminal, edge: Rule, end: tuple[Nonterminal, ...], begins: dict[Symbol, list[Rule]]
) -> Iterator[Rule]:
    """Yield `left` → β `end` for the edge C → Bβ, with the first symbol of β expanded if it is a variable."""
    first, *rest = edge.right[1:]
    if isinstance(first, str):
        yield Rule(left, (first, *rest, *end), edge.weight)
    else:
        for rule in begins.get(first, ()):
            yield Rule(left, (*rule.right, *rest, *end), edge.weight * rule.weight)


def _left_corners(edges: list[Rule]) -> list[tuple[Nonterminal, Nonterminal]]:
    """Return the pairs (A, B) such that A derives Bγ in one or more steps down the left edge."""
    by_left = grouped(edges, _left)
    below = {A: [edge.variables[0] for edge in own] for A, own in by_left.items()}
    return [(A, B) for A in below for B in reachable_from(below[A], lambda C: below.get(C, ()))]


LONGEST_LABEL = 16


class _Cutter:
    """Cuts right sides into short ones; equal pieces share a variable named after what it derives: NP·VP."""

    def __init__(self, rules: list[Rule], split: set[Right], cut: Cut) -> None:
        self.given, self.split, self.cut = rules, split, cut
        self.names: dict[Right, Nonterminal] = {}
        self.taken = {rule.left.name for rule in rules}
        self.sources: dict[Right, set[Right]] = {}  # aX -> the right sides cut to aX or aXY

    def rules(self) -> Iterator[Rule]:
        for rule in self.given:
            yield Rule(rule.left, self._pieces(rule.right), rule.weight)
        done: set[Right] = set()
        while open_ := [symbols for symbols in self.names if symbols not in done]:
            yield from (Rule(self.names[symbols], self._pieces(symbols)) for symbols in open_)
            done.update(open_)

    def _name(self, symbols: Right) -> Nonterminal:
        if len(symbols) == 1 and isinstance(symbols[0], Nonterminal):
            return symbols[0]
        if symbols not in self.names:
            label = "·".join(map(str, symbols))
            short = label if len(label) <= LONGEST_LABEL else f"{label[:LONGEST_LABEL]}…"
            self.names[symbols] = fresh_nonterminal(short, self.taken)
        return self.names[symbols]

    def _pieces(self, right: Right) -> Right:
        first, rest = right[:1], right[1:]
        if not rest:
            return right
        if isinstance(first[0], Nonterminal) or right in self.split:
            return (self._name(first), self._name(rest))
        if self.cut == "rest" or len(rest) == 1:
            pieces: Right = (*first, self._name(rest))
        else:
            middle = 1 if self.cut == "first" else -1
            pieces = (*first, self._name(rest[:middle]), self._name(rest[middle:]))
        self.sources.setdefault(pieces[:2], set()).add(right)
        return pieces


def _lift_terminals(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield A → a..T.. and T → b for every rule A → a..b.., so that terminals occur in first place only."""
    rules = list(rules)
    taken = {rule.left.name for rule in rules}
    lifted: dict[str, Nonterminal] = {}
    for rule in rules:
        right = list(rule.right[:1])
        for symbol in rule.right[1:]:
            if isinstance(symbol, str):
                if symbol not in lifted:
                    name = f"T{symbol}" if symbol.isalnum() else f"T{len(lifted)}"
                    lifted[symbol] = fresh_nonterminal(name, taken)
                right.append(lifted[symbol])
            else:
                right.append(symbol)
        yield Rule(rule.left, tuple(right), rule.weight)
    for terminal, name_ in lifted.items():
        yield Rule(name_, (terminal,))


def _build(original: CFG, rules: Iterable[Rule]) -> CFG:
    useful = trim(rules, original.start)
    return merge_equivalent((WeightedCFG if original.weighted else CFG)(useful, original.start))
