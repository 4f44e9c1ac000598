"""Smaller grammars: merging equivalent nonterminals, and factoring rules with a common part.

Two nonterminals are equivalent if they have the same rules, up to equivalence. The coarsest such partition is
found by refinement. The start variable is not merged with others, so that it occurs on no right side.

`factor` unites variables: A → aXC and A → aYC become A → aUC, where U derives what X or Y derives.
"""

from collections.abc import Iterable

from ndstack.grammars.grammar import CFG, Nonterminal, Rule, Symbol, fresh_nonterminal, trim

Signature = frozenset[tuple[tuple[Symbol, ...], float]]


def merge_equivalent(grammar: CFG) -> CFG:
    """Return the grammar with one nonterminal, the first, for each class of equivalent nonterminals."""
    name = dict.fromkeys(grammar.nonterminals, grammar.start)
    while True:
        classes: dict[tuple[bool, Signature], Nonterminal] = {}
        finer = {
            A: classes.setdefault((grammar.start == A, _signature(grammar, A, name)), A)
            for A in grammar.nonterminals
        }
        if len(classes) == len(set(name.values())):
            break
        name = finer
    kept = set(finer.values())
    rules = [
        Rule(rule.left, _rename(rule.right, finer), rule.weight)
        for rule in grammar.rules
        if rule.left in kept
    ]
    return type(grammar)(tuple(rules), grammar.start)


def _signature(grammar: CFG, A: Nonterminal, name: dict[Nonterminal, Nonterminal]) -> Signature:
    totals: dict[tuple[Symbol, ...], float] = {}
    for rule in grammar.rules_for(A):
        right = _rename(rule.right, name)
        totals[right] = totals.get(right, 0.0) + rule.weight if grammar.weighted else 1.0
    return frozenset(totals.items())


def _rename(right: tuple[Symbol, ...], name: dict[Nonterminal, Nonterminal]) -> tuple[Symbol, ...]:
    return tuple(s if isinstance(s, str) else name[s] for s in right)


Variables = frozenset[Nonterminal]
Split = tuple[str, tuple[Variables, ...]]


def factor(grammar: CFG, limit: int = 3) -> CFG | None:
    """Return an equivalent grammar in which rules with a common terminal and variable are united.

    The grammar must have no weights, and only rules of the forms S → ε, A → a, A → aB and A → aBC. A
    derivation of the result may stand for several of the original. The function returns None if the result
    would have more than `limit` times as many variables.
    """
    names: dict[Variables, Nonterminal] = {frozenset({grammar.start}): grammar.start}
    taken = {grammar.start.name}
    rules: list[Rule] = []
    open_ = list(names)
    while open_:
        united = open_.pop(0)
        rights = {rule.right for A in sorted(united) for rule in grammar.rules_for(A)}
        if () in rights:
            rules.append(Rule(names[united], ()))
        for terminal, parts in _united(sorted(rights - {()}, key=str)):
            for part in parts:
                if part not in names:
                    names[part] = fresh_nonterminal("|".join(sorted(map(str, part))), taken)
                    open_.append(part)
            rules.append(Rule(names[united], (terminal, *(names[part] for part in parts))))
        if len(names) > limit * len(grammar.nonterminals):
            return None
    return merge_equivalent(CFG(trim(rules, grammar.start), grammar.start))


def _united(rights: Iterable[tuple[Symbol, ...]]) -> list[Split]:
    """Return right sides with sets of variables: united first in the first place, then in the second."""
    first: dict[tuple[str, tuple[Symbol, ...]], set[Nonterminal]] = {}
    found: list[Split] = []
    for right in rights:
        if len(right) == 1:
            found.append((str(right[0]), ()))
        elif isinstance(right[1], Nonterminal):
            first.setdefault((str(right[0]), right[2:]), set()).add(right[1])
    second: dict[tuple[str, Variables, bool], set[Nonterminal]] = {}
    for (terminal, rest), variables in first.items():
        last = second.setdefault((terminal, frozenset(variables), bool(rest)), set())
        last.update(A for A in rest if isinstance(A, Nonterminal))
    found += [(a, (X, frozenset(last)) if last else (X,)) for (a, X, _), last in second.items()]
    return found
