"""Removal of ε-rules and unary rules that keeps the weight of every string (used in section 5.5).

Let e_B be the weight with which B derives ε. A rule A → ..B.. is split into one that keeps B, which then
derives non-empty strings only, and one without B, whose weight is multiplied by e_B. The total weight of all
chains of unary rules from A to B, cycles included, is (I - U)^{-1}[A, B]. A PCFG remains a PCFG, because its
weights are conditioned on deriving something other than ε.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ndstack.grammars.fixed_point import derive_nonempty, null_weights, star
from ndstack.grammars.grammar import (
    CFG,
    PCFG,
    SUM_TOLERANCE,
    Nonterminal,
    Rule,
    WeightedCFG,
    fresh_nonterminal,
    trim,
)
from ndstack.grammars.graphs import grouped, transitive_closure

MOST_NULLABLE = 6
"""A rule with more nullable symbols is cut into several rules first."""


def remove_epsilon(grammar: CFG) -> CFG:
    """Return an equivalent grammar whose only ε-rule, if any, is that of an isolated start variable."""
    grammar = _split_long_rules(grammar)
    null = null_weights(grammar)
    full = derive_nonempty(grammar)
    keep = _nonempty_weights(grammar, {A: null[A] for A in full})
    rules = [
        replace(new, weight=new.weight * _rescaling(new, keep))
        for rule in grammar.rules
        for new in _without_nullable(rule, null, full)
    ]
    start, weight = grammar.start, null[grammar.start]
    if weight == 0:
        return _build(grammar, rules, start)
    if start not in full:
        return _build(grammar, [Rule(start, (), weight)], start)
    if grammar.start_is_isolated():
        rules = [replace(r, weight=r.weight * keep[start]) if r.left == start else r for r in rules]
    else:
        start = fresh_nonterminal(grammar.start.name, {A.name for A in grammar.nonterminals})
        rules.insert(0, Rule(start, (grammar.start,), keep[grammar.start]))
    return _build(grammar, [*rules, Rule(start, (), weight)], start)


def remove_unary(grammar: CFG) -> CFG:
    """Return an equivalent grammar without rules of the form A → B."""
    index = {A: i for i, A in enumerate(grammar.nonterminals)}
    unary = np.zeros((len(index), len(index)))
    for rule in grammar.rules:
        if _is_unary(rule):
            unary[index[rule.left], index[rule.variables[0]]] += rule.weight
    chains = star(unary, "unary rules") if grammar.weighted else transitive_closure(unary).astype(float)
    rules = [
        Rule(A, rule.right, float(chains[index[A], index[rule.left]]) * rule.weight)
        for A in grammar.nonterminals
        for rule in grammar.rules
        if not _is_unary(rule) and chains[index[A], index[rule.left]] > 0
    ]
    return _build(grammar, rules, grammar.start)


def proper(grammar: CFG) -> CFG:
    """Return an equivalent grammar without unary rules and without ε-rules, except for the start variable."""
    return remove_unary(remove_epsilon(grammar))


def _is_unary(rule: Rule) -> bool:
    return len(rule.right) == len(rule.variables) == 1


def _split_long_rules(grammar: CFG) -> CFG:
    """Return the grammar with rules cut after every few nullable symbols; p of these vanish in 2^p ways."""
    null = null_weights(grammar)
    rules: list[Rule] = []
    taken = {A.name for A in grammar.nonterminals}
    for rule in grammar.rules:
        nullable = [i for i, s in enumerate(rule.right) if isinstance(s, Nonterminal) and null[s] > 0]
        while len(nullable) > MOST_NULLABLE:
            cut = nullable[MOST_NULLABLE - 1]
            tail = fresh_nonterminal(f"{rule.left}", taken)
            rules.append(replace(rule, right=(*rule.right[:cut], tail)))
            rule = Rule(tail, rule.right[cut:])
            nullable = [i - cut for i in nullable if i >= cut]
        rules.append(rule)
    return grammar if len(rules) == len(grammar.rules) else type(grammar)(tuple(rules), grammar.start)


def _nonempty_weights(grammar: CFG, null: dict[Nonterminal, float]) -> dict[Nonterminal, float]:
    """Return 1 - e for each nonterminal, which makes its rules sum to 1 again; 1 if that lacks precision."""
    if isinstance(grammar, PCFG) and all(e <= 1 - 1e-6 for e in null.values()):
        return {A: 1 - e for A, e in null.items()}
    return dict.fromkeys(null, 1.0)


def _without_nullable(rule: Rule, null: dict[Nonterminal, float], full: set[Nonterminal]) -> Iterator[Rule]:
    """Yield the rule without each set of nullable symbols that leaves at least one symbol."""
    options: list[list[tuple[tuple[Nonterminal | str, ...], float]]] = []
    for symbol in rule.right:
        kept = [((symbol,), 1.0)] if isinstance(symbol, str) or symbol in full else []
        left_out = [((), null[symbol])] if isinstance(symbol, Nonterminal) else []
        options.append([*kept, *(o for o in left_out if o[1] > 0)])
    for choice in product(*options):
        right = tuple(s for symbols, _ in choice for s in symbols)
        if right:
            yield Rule(rule.left, right, float(rule.weight * np.prod([w for _, w in choice])))


def _rescaling(rule: Rule, keep: dict[Nonterminal, float]) -> float:
    kept = np.prod([keep[A] for A in rule.variables])
    return float(kept / keep[rule.left])


def _build(original: CFG, rules: list[Rule], start: Nonterminal) -> CFG:
    """Return a grammar of the same class; a PCFG that loses mass to infinite derivations is weighted."""
    useful = trim(rules, start)
    if not original.weighted:
        return CFG(tuple(replace(rule, weight=1.0) for rule in useful), start)
    totals = [sum(r.weight for r in own) for own in grouped(useful, lambda rule: rule.left).values()]
    if isinstance(original, PCFG) and all(abs(total - 1) <= SUM_TOLERANCE for total in totals):
        return PCFG(useful, start)
    return WeightedCFG(useful, start)
