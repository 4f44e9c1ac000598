"""Small restricted PDAs from grammars in quadratic Greibach normal form.

Section 4.3 puts several constituents into one stack symbol, because a transition cannot replace the top
symbol and push at once; the stack alphabet then grows like the right sides of the grammar. If every rule is
A → a, A → aB or A → aBC, that is not necessary: what comes next is kept in the state instead. Let
"X before x" be the configuration in state X with x on top: X is to be derived first, then x and what is
beneath it. In state loop, the top symbol comes next.

    X before x      X → a      state loop
                    X → aB     state B; or push B, state loop
                    X → aBC    push C, state B
    loop, A on top  A → a      pop
                    A → aB     replace A by B
                    A → aBC    replace A by C, state B; or, if C is A, push B

The automaton starts as S before ⊥ and accepts in state loop. Another variant always has in the state what
comes next, and X → a pops x and goes to state x. Every derivation is one run, so weights are kept. Which
variant is smallest after `merge_types` depends on the grammar; `compact` tries all of them, and that of
`to_restricted`. For Dyck that makes 2 states and 3 stack symbols, where section 4.3 has 7 and 46.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ndstack.automata.conversion import START, restrict_greibach
from ndstack.automata.merging import merge_types
from ndstack.automata.pda import BOTTOM, PDA, RestrictedPDA, RestrictedWPDA, Transition
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triples import grammar_rules, to_grammar
from ndstack.errors import AutomatonError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.greibach import Cut, greibach, quadratic_greibach
from ndstack.grammars.reduction import factor

LOOP = "loop"
MANY = 3000
"""An automaton with more transitions than this is not tried."""
TRIED = 12
"""How many automata, the smallest ones, are made smaller still and compared."""


def compact(machine: CFG | PDA) -> RestrictedPDA:
    """An equivalent restricted PDA that is as small as we can make it; weights are kept."""
    if isinstance(machine, RestrictedPDA):
        return merge_types(machine)
    if isinstance(machine, PDA):
        if not grammar_rules(machine):
            return (RestrictedWPDA if machine.weighted else RestrictedPDA)((), START, frozenset())
        machine = to_grammar(machine)
    trimmed = [trim_restricted(pda) for pda in _candidates(machine)]
    few = sorted((pda for pda in trimmed if len(pda.transitions) <= MANY), key=_cost)[:TRIED]
    if not few:
        return restrict_greibach(greibach(machine))
    return min(map(merge_types, few), key=_cost)


def _cost(pda: RestrictedPDA) -> int:
    """|Q||Γ|, with one state more for the trap of section 8.3."""
    return (len(pda.states) + 1) * len(pda.stack_alphabet)


def _candidates(grammar: CFG) -> Iterator[RestrictedPDA]:
    for form in _forms(grammar):
        if len(form.rules) <= MANY // 10:
            for tail in _tails(form):
                yield _Builder(form, tail, loop=False, push_same=False, push_last=False).build()
                for push_same, push_last in product((True, False), repeat=2):
                    yield _Builder(form, tail, True, push_same, push_last).build()
    short = greibach(grammar)
    if len(short.rules) <= MANY // 50:
        yield restrict_greibach(short)


def _forms(grammar: CFG) -> list[CFG]:
    """Quadratic Greibach normal forms of the grammar, each different from the others."""
    cuts: tuple[Cut, ...] = ("rest", "first", "last")
    forms = [quadratic_greibach(grammar, cut) for cut in cuts]
    if not grammar.weighted:
        forms += [factored for form in forms if (factored := factor(form))]
    return list(dict.fromkeys(forms))


@dataclass(frozen=True)
class _Tail:
    """N such that, on ⊥, the grammar's S is a β or a β N for the same aβ, and N likewise.

    Then ⊥ in the accepting state can stand for "N or nothing": what is derived on ⊥ leaves out N and, once
    it is done, goes on like N. Weights of aβN must be those of aβ times one ratio.
    """

    symbol: Nonterminal
    ratio: float


def _tails(grammar: CFG) -> list[_Tail | None]:
    """A tail, if there is one, and none."""
    for symbol in grammar.nonterminals[1:]:
        ratios: list[float] = []
        for left in (grammar.start, symbol):
            rules = {rule.right: rule.weight for rule in grammar.rules_for(left) if rule.right}
            short = {right: weight for right, weight in rules.items() if right[-1] != symbol}
            if {(*right, symbol) for right in short} != rules.keys() - short.keys():
                break
            ratios += [rules[*right, symbol] / weight for right, weight in short.items()]
        else:
            if ratios and all(math.isclose(r, ratios[0], rel_tol=1e-13) for r in ratios):
                return [_Tail(symbol, ratios[0]), None]
    return [None]


@dataclass(frozen=True)
class _Builder:
    """One of the variants."""

    grammar: CFG
    tail: _Tail | None
    loop: bool
    """Whether what comes next may be the top symbol; otherwise it is always the state."""
    push_same: bool
    """Whether A → aBA pushes B."""
    push_last: bool
    """Whether, in X before x, X → aB pushes B."""

    def build(self) -> RestrictedPDA:
        empty = [rule for rule in self.grammar.rules if not rule.right]
        if empty and self.grammar.weighted and empty[0].weight != 1:
            raise AutomatonError(
                f"rule {empty[0]} weighs {empty[0].weight:g}: an automaton that reads a symbol a step gives "
                "the empty string weight 0 or 1; leave that rule out and treat the empty string apart"
            )
        names = {A: f"{A}." for A in self.grammar.nonterminals} | {self.grammar.start: START}
        transitions = tuple(self._transitions(names))
        build = RestrictedWPDA if self.grammar.weighted else RestrictedPDA
        return build(transitions, START, frozenset({LOOP, START} if empty else {LOOP}))

    def _transitions(self, names: dict[Nonterminal, str]) -> Iterator[Transition]:
        others = [A.name for A in self.grammar.nonterminals[1:]]
        symbols = [self._symbol(name) for name in others]
        tops = dict(zip(symbols, self.grammar.nonterminals[1:], strict=True))
        for rule in self.grammar.rules:
            if rule.right:
                ends_in_tail = self.tail is not None and rule.right[-1] == self.tail.symbol
                if rule.left != self.grammar.start:
                    for x in symbols:
                        yield self._before(rule, x, names, tops)
                if not (ends_in_tail and self._is_tail(rule.left)):
                    yield self._before(rule, BOTTOM, names, tops)
                if self.loop and rule.left != self.grammar.start:
                    yield self._on_top(rule, names)
        if self.tail is not None:
            for rule in self.grammar.rules_for(self.tail.symbol):
                if rule.right[-1] != self.tail.symbol:
                    step = self._before(rule, BOTTOM, names, tops)
                    yield replace(step, state=LOOP, weight=step.weight * self.tail.ratio)

    def _is_tail(self, left: Nonterminal) -> bool:
        return left == self.grammar.start or (self.tail is not None and left == self.tail.symbol)

    def _symbol(self, name: str) -> str:
        return f"{name}_" if name == BOTTOM else name

    def _before(
        self, rule: Rule, x: str, names: dict[Nonterminal, str], tops: dict[str, Nonterminal]
    ) -> Transition:
        """The step of X before x."""
        state, a = names[rule.left], str(rule.right[0])
        variables = [A for A in rule.right if isinstance(A, Nonterminal)]
        if not variables:
            if self.loop or x == BOTTOM:
                return Transition(state, a, (x,), LOOP, (x,), rule.weight)
            return Transition(state, a, (x,), names[tops[x]], (), rule.weight)
        first, *rest = variables
        if rest:
            return Transition(state, a, (x,), names[first], (x, self._symbol(rest[0].name)), rule.weight)
        if self.loop and self.push_last:
            return Transition(state, a, (x,), LOOP, (x, self._symbol(first.name)), rule.weight)
        return Transition(state, a, (x,), names[first], (x,), rule.weight)

    def _on_top(self, rule: Rule, names: dict[Nonterminal, str]) -> Transition:
        """The step of state loop with A on top."""
        top, a = self._symbol(rule.left.name), str(rule.right[0])
        variables = [A for A in rule.right if isinstance(A, Nonterminal)]
        symbols = [self._symbol(A.name) for A in variables]
        if len(symbols) < 2:
            return Transition(LOOP, a, (top,), LOOP, tuple(symbols), rule.weight)
        if self.push_same and symbols[1] == top:
            return Transition(LOOP, a, (top,), LOOP, (top, symbols[0]), rule.weight)
        return Transition(LOOP, a, (top,), names[variables[0]], (symbols[1],), rule.weight)
