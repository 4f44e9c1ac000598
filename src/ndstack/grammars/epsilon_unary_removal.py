"""Removal of ε-rules and unary rules that keeps every string's weight (used in section 5.5).

With e_B the weight with which B derives ε, a rule A → ..B.. splits into one with B kept, where B now
derives non-empty strings only, and one with B left out, which weighs e_B times as much. A chain of unary
rules from A to B weighs (I - U)^{-1}[A, B] in all, cycles included. A PCFG stays a PCFG: its weights are
conditioned on deriving something other than ε.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ndstack.grammars.fixed_point import derive_nonempty, null_weights, reachability, star
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

MOST_NULLABLE = 6  # nullable symbols that a rule keeps when it is split


def remove_epsilon(grammar: CFG) -> CFG:
    """An equivalent grammar whose only ε-rule, if any, is that of an isolated start variable."""
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
        start = fresh_nonterminal(grammar.start.name, grammar.nonterminals)
        rules.insert(0, Rule(start, (grammar.start,), keep[grammar.start]))
    return _build(grammar, [*rules, Rule(start, (), weight)], start)


def remove_unary(grammar: CFG) -> CFG:
    """An equivalent grammar without rules of the form A → B."""
    index = {A: i for i, A in enumerate(grammar.nonterminals)}
    unary = np.zeros((len(index), len(index)))
    for rule in grammar.rules:
        if _is_unary(rule):
            unary[index[rule.left], index[rule.right[0]]] += rule.weight  # type: ignore[index]
    chains = star(unary, "unary rules") if grammar.weighted else reachability(unary).astype(float)
    rules = [
        Rule(A, rule.right, float(chains[index[A], index[rule.left]]) * rule.weight)
        for A in grammar.nonterminals
        for rule in grammar.rules
        if not _is_unary(rule) and chains[index[A], index[rule.left]] > 0
    ]
    return _build(grammar, rules, grammar.start)


def proper(grammar: CFG) -> CFG:
    """An equivalent grammar without unary rules and, but for the start variable's, ε-rules."""
    return remove_unary(remove_epsilon(grammar))


def _is_unary(rule: Rule) -> bool:
    return len(rule.right) == 1 and isinstance(rule.right[0], Nonterminal)


def _split_long_rules(grammar: CFG) -> CFG:
    """The same with A → X₁⋯X_p cut after every few nullable symbols, which have 2^p ways to vanish."""
    null = null_weights(grammar)
    rules: list[Rule] = []
    taken = set(grammar.nonterminals)
    for rule in grammar.rules:
        nullable = [i for i, s in enumerate(rule.right) if isinstance(s, Nonterminal) and null[s] > 0]
        while len(nullable) > MOST_NULLABLE:
            cut = nullable[MOST_NULLABLE - 1]
            tail = fresh_nonterminal(f"{rule.left}", taken)
            taken.add(tail)
            rules.append(replace(rule, right=(*rule.right[:cut], tail)))
            rule = Rule(tail, rule.right[cut:])
            nullable = [i - cut for i in nullable if i >= cut]
        rules.append(rule)
    return grammar if len(rules) == len(grammar.rules) else type(grammar)(tuple(rules), grammar.start)


def _nonempty_weights(grammar: CFG, null: dict[Nonterminal, float]) -> dict[Nonterminal, float]:
    """What the rules of a nonterminal are divided by to sum to 1 again: 1 - e, if it has enough digits."""
    if isinstance(grammar, PCFG) and all(e <= 1 - 1e-6 for e in null.values()):
        return {A: 1 - e for A, e in null.items()}
    return dict.fromkeys(null, 1.0)


def _without_nullable(rule: Rule, null: dict[Nonterminal, float], full: set[Nonterminal]) -> Iterator[Rule]:
    """The rule with every choice of nullable symbols left out that leaves something."""
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
    kept = np.prod([keep[s] for s in rule.right if isinstance(s, Nonterminal)])
    return float(kept / keep[rule.left])


def _build(original: CFG, rules: list[Rule], start: Nonterminal) -> CFG:
    """A grammar of the original's kind; a PCFG that loses mass to endless derivations is weighted."""
    useful = trim(rules, start)
    if not original.weighted:
        return CFG(tuple(replace(rule, weight=1.0) for rule in useful), start)
    totals: dict[Nonterminal, float] = {}
    for rule in useful:
        totals[rule.left] = totals.get(rule.left, 0.0) + rule.weight
    if isinstance(original, PCFG) and all(abs(t - 1) <= SUM_TOLERANCE for t in totals.values()):
        return PCFG(useful, start)
    return WeightedCFG(useful, start)
