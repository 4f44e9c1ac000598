"""Merging nonterminals that derive the same strings with the same weights for the same reasons.

Two nonterminals are merged if they have the same rules once merged nonterminals count as equal: the coarsest
partition with that property, found by refinement. The start variable stays by itself, so that it does not
come to stand on a right side.
"""

from ndstack.grammars.grammar import CFG, Nonterminal, Rule, Symbol

Signature = frozenset[tuple[tuple[Symbol, ...], float]]


def merge_equivalent(grammar: CFG) -> CFG:
    """The grammar with one nonterminal, the first, for each class of equivalent ones."""
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
