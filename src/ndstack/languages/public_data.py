"""Dyck and padded reversal as in the data of the dissertation's public code, which differ from section 5.3.

That code removes a rule A → β of probability p by substituting β for A in right sides (with probability p for
each A) and dividing the other rules of A by 1 - p. If A is the start variable, nothing is substituted for the
start itself, so that no derivation begins with the removed rule. Dyck loses S → T: every string consists of
two or more bracketed parts. Padded reversal loses S → T0, S → T1 and the empty string.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from ndstack.grammars.grammar import PCFG, Nonterminal, Rule, Symbol
from ndstack.languages.context_free import dyck_grammar, padded_reversal_grammar


def public_dyck_grammar(k: int) -> PCFG:
    """Return the public Dyck grammar, for two or more parts; its nesting depth is f(39), not f(40)."""
    return _as_public(dyck_grammar(k, nesting=39))


def public_padded_reversal_grammar(k: int) -> PCFG:
    """Return the public grammar of padded reversal, which has at least one symbol before the padding."""
    return _as_public(padded_reversal_grammar(k))


PUBLIC: dict[str, Callable[[int], PCFG]] = {
    "dyck": public_dyck_grammar,
    "padded-reversal": public_padded_reversal_grammar,
}
"""The languages that have a public version, such as `dyck(public)`."""


def _as_public(grammar: PCFG) -> PCFG:
    """Return the grammar without ε-rules and unary rules, removed as in the public code."""
    rules = _remove_all(list(grammar.rules), lambda right: not right)
    rules = _remove_all(rules, lambda right: len(right) == 1 and isinstance(right[0], Nonterminal))
    return PCFG(tuple(rules), grammar.start)


def _remove_all(rules: list[Rule], unwanted: Callable[[Sequence[Symbol]], bool]) -> list[Rule]:
    while True:
        gone = next((rule for rule in rules if unwanted(rule.right)), None)
        if gone is None:
            return rules
        rules = [new for rule in rules if rule is not gone for new in _put_in(rule, gone)]


def _put_in(rule: Rule, gone: Rule) -> Iterator[Rule]:
    """Yield the rule with every choice of places where the removed rule is substituted."""
    rest = 1 - gone.weight
    scale = rule.weight / rest if rule.left == gone.left else rule.weight
    options: list[list[tuple[tuple[Symbol, ...], float]]] = [
        [((symbol,), rest), (gone.right, gone.weight)] if symbol == gone.left else [((symbol,), 1.0)]
        for symbol in rule.right
    ]
    for choice in product(*options):
        weight = scale
        for _, share in choice:
            weight *= share
        yield Rule(rule.left, tuple(symbol for part, _ in choice for symbol in part), weight)
