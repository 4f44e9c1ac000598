"""Greibach normal form (section 2.3.4) and 2-Greibach normal form (section 4.3, lemma 1).

Left recursion goes by the left-corner transformation, which keeps every string's weight and stays
polynomial: a derivation A → B₁β₁, B₁ → B₂β₂, ..., B → aβ down the left edge is read from its foot, as
A → aβ A/B where the new nonterminal A/B derives the remainder β_k ... β₁ on the way up from B to A.
Nonterminals that turn out equivalent are merged.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from ndstack.grammars.grammar import CFG, Nonterminal, Rule, WeightedCFG, fresh, trim
from ndstack.grammars.reduction import merge_equivalent
from ndstack.grammars.removal import proper


def greibach(grammar: CFG) -> CFG:
    """An equivalent grammar in Greibach normal form; weights of strings are kept."""
    grammar = isolate_start(proper(grammar))
    empty = [rule for rule in grammar.rules if not rule.right]
    rules = [rule for rule in grammar.rules if rule.right]
    rules = list(_lift_terminals(_left_corner(rules, grammar.nonterminals)))
    return _build(grammar, [*rules, *empty])


def two_greibach(grammar: CFG) -> CFG:
    """An equivalent grammar in 2-Greibach normal form; weights of strings are kept.

    "for every rule A → aA₁⋯A_m and every rule A₁ → bB₁⋯B_ℓ, substitute the second rule into the first"
    """
    grammar = grammar if is_greibach(grammar) else greibach(grammar)
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
    """Whether S is on no right side and every rule is S → ε or A → aB₁⋯B_p."""
    return _has_form(grammar, leading_terminals=(1,))


def is_two_greibach(grammar: CFG) -> bool:
    """Whether S is on no right side and every rule is S → ε, A → a or A → abB₁⋯B_p."""
    return _has_form(grammar, leading_terminals=(1, 2)) and all(
        len(rule.right) < 2 or isinstance(rule.right[1], str) for rule in grammar.rules
    )


def isolate_start(grammar: CFG) -> CFG:
    """The same grammar with a start variable that is on no right side."""
    if grammar.start_is_isolated():
        return grammar
    start = fresh(grammar.start.name, grammar.nonterminals)
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


def _left_corner(rules: list[Rule], nonterminals: Iterable[Nonterminal]) -> Iterator[Rule]:
    """Rules that all begin with a terminal; see the module's docstring."""
    feet = [r for r in rules if isinstance(r.right[0], str)]
    edges = [r for r in rules if isinstance(r.right[0], Nonterminal)]
    pairs = _left_corners(edges)
    names: dict[tuple[Nonterminal, Nonterminal], Nonterminal] = {}
    for A, B in pairs:
        names[A, B] = fresh(f"{A}/{B}", chain(nonterminals, names.values()))

    begins: dict[Nonterminal, list[Rule]] = {}
    for foot in feet:
        begins.setdefault(foot.left, []).append(foot)
    for (A, B), remainder in names.items():
        for foot in feet:
            if foot.left == B:
                rule = Rule(A, (*foot.right, remainder), foot.weight)
                begins.setdefault(A, []).append(rule)
    yield from chain.from_iterable(begins.values())

    for (A, B), remainder in names.items():
        for edge in edges:
            if edge.right[0] != B:
                continue
            ends: list[tuple[Nonterminal, ...]] = [()] if edge.left == A else []
            if (A, edge.left) in names:
                ends.append((names[A, edge.left],))
            for end in ends:
                yield from _begin_with_terminal(remainder, edge, end, begins)


def _begin_with_terminal(
    left: Nonterminal,
    edge: Rule,
    end: tuple[Nonterminal, ...],
    begins: dict[Nonterminal, list[Rule]],
) -> Iterator[Rule]:
    """`left` → β `end` for the edge C → Bβ, with β's first symbol expanded if it is a variable."""
    first, *rest = edge.right[1:]
    if isinstance(first, str):
        yield Rule(left, (first, *rest, *end), edge.weight)
    else:
        for rule in begins.get(first, ()):
            yield Rule(left, (*rule.right, *rest, *end), edge.weight * rule.weight)


def _left_corners(edges: list[Rule]) -> list[tuple[Nonterminal, Nonterminal]]:
    """Pairs (A, B) such that A derives Bγ in one or more steps down the left edge."""
    pairs = dict.fromkeys((r.left, r.right[0]) for r in edges)
    while True:
        wider = pairs | dict.fromkeys((A, r.right[0]) for A, B in pairs for r in edges if r.left == B)
        if len(wider) == len(pairs):
            return [(A, B) for A, B in pairs if isinstance(B, Nonterminal)]
        pairs = wider


def _lift_terminals(rules: Iterable[Rule]) -> Iterator[Rule]:
    """A → a..b.. becomes A → a..T.. with a rule T → b: terminals stay in first place only."""
    rules = list(rules)
    taken = {rule.left for rule in rules}
    lifted: dict[str, Nonterminal] = {}
    for rule in rules:
        right = list(rule.right[:1])
        for symbol in rule.right[1:]:
            if isinstance(symbol, str):
                if symbol not in lifted:
                    name = f"T{symbol}" if symbol.isalnum() else f"T{len(lifted)}"
                    lifted[symbol] = fresh(name, chain(taken, lifted.values()))
                right.append(lifted[symbol])
            else:
                right.append(symbol)
        yield Rule(rule.left, tuple(right), rule.weight)
    for terminal, name_ in lifted.items():
        yield Rule(name_, (terminal,))


def _build(original: CFG, rules: Iterable[Rule]) -> CFG:
    useful = trim(rules, original.start)
    return merge_equivalent((WeightedCFG if original.weighted else CFG)(useful, original.start))
