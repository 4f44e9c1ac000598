"""Small restricted PDAs from grammars in quadratic Greibach normal form.

Section 4.3 puts several constituents into one stack symbol, because a transition cannot replace the top
symbol and push at once; the stack alphabet then grows with the right sides of the grammar. If every rule is
A → a, A → aB or A → aBC, this is not necessary, because the state can hold what comes next. Let "X before x"
be the configuration in state X with x on top: X is to be derived first, then x and what is beneath it. In
state loop, the top symbol comes next.

    X before x      X → a      state loop
                    X → aB     state B; or push B, state loop
                    X → aBC    push C, state B
    loop, A on top  A → a      pop
                    A → aB     replace A with B
                    A → aBC    replace A with C, state B; or, if C is A, push B

The automaton starts as S before ⊥ and accepts in state loop. In another variant, the state always holds what
comes next, and X → a pops x and goes to state x. Every derivation is one run, so weights are kept. Which
variant is smallest after `merge_types` depends on the grammar; `compact` tries all of them, and the result of
`to_restricted`. For Dyck it finds 2 states and 3 stack symbols, where section 4.3 has 7 and 46.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, product

from ndstack.automata.conversion import (
    LOOP,
    MOST_TRANSITIONS,
    START,
    check_no_bottom,
    derives_empty,
    nothing,
    restrict_greibach,
)
from ndstack.automata.merging import EFFORT, merge_types
from ndstack.automata.pda import BOTTOM, PDA, RestrictedPDA, Transition, restricted_class
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triple_construction import find_grammar
from ndstack.errors import AutomatonError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.greibach import ASK_THE_GRAMMAR, Cut, greibach, quadratic_greibach
from ndstack.grammars.reduction import factor

__all__ = ["compact", "variants"]

END = "end"
MOST_RULES = 5000
"""A grammar with more rules in Greibach normal form is refused."""
MANY = 3000
"""An automaton with more transitions is left as it is."""
TRIED = 12
"""The number of automata, the smallest ones, on which `merge_types` is tried, unless together they have more
than `MANY` transitions."""


def compact(machine: CFG | PDA) -> RestrictedPDA:
    """Return the smallest equivalent restricted PDA that is found; strings keep their weights."""
    return min(variants(machine), key=_cost)


def variants(machine: CFG | PDA) -> list[RestrictedPDA]:
    """Return small equivalent restricted PDAs, some with few states and some with few stack symbols."""
    if isinstance(machine, RestrictedPDA):
        return [merge_types(machine)]
    if isinstance(machine, PDA):
        grammar = find_grammar(machine)
        if grammar is None:
            return [nothing(machine)]
        machine = grammar
    check_no_bottom(machine)
    forms = sorted(_forms(machine), key=_estimate)
    trimmed = [trim_restricted(pda) for pda in _candidates(machine, forms)]
    small = sorted((pda for pda in trimmed if len(pda.transitions) <= MANY), key=_cost)[:TRIED]
    before = accumulate((len(pda.transitions) for pda in small), initial=0)
    few = [pda for pda, done in zip(small, before, strict=False) if done <= MANY]
    if few:
        effort = EFFORT // len(few)
        return [merge_types(pda, effort) for pda in few]
    if not trimmed and _estimate(forms[0]) > MOST_TRANSITIONS:
        raise AutomatonError(
            f"the automaton of this grammar has about {_estimate(forms[0]):,} transitions, more than the "
            f"limit of {MOST_TRANSITIONS:,}; {ASK_THE_GRAMMAR}"
        )
    return trimmed or [_Builder(forms[0], None, loop=False, push_same=False, push_last=False).build()]


def _estimate(form: CFG) -> int:
    """Return an estimate of how many transitions the automata of a grammar have before trimming."""
    return len(form.rules) * len(form.nonterminals)


def _cost(pda: RestrictedPDA) -> int:
    """Return |Q||Γ|, with one more state for the trap of section 8.3."""
    return (len(pda.states) + 1) * len(pda.stack_alphabet)


def _candidates(grammar: CFG, forms: list[CFG]) -> Iterator[RestrictedPDA]:
    for form in forms:
        if _estimate(form) <= 5 * MANY:
            for tail in _tails(form):
                yield _Builder(form, tail, loop=False, push_same=False, push_last=False).build()
                for push_same, push_last in product((True, False), repeat=2):
                    yield _Builder(form, tail, True, push_same, push_last).build()
    if len(grammar.rules) <= MANY // 50 and len((short := greibach(grammar)).rules) <= MANY // 50:
        yield restrict_greibach(short)


def _forms(grammar: CFG) -> list[CFG]:
    """Return the different quadratic Greibach normal forms of the grammar."""
    cuts: tuple[Cut, ...] = ("rest", "first", "last")
    forms = [quadratic_greibach(grammar, cut, MOST_RULES) for cut in cuts]
    if not grammar.weighted:
        forms += [factored for form in forms if (factored := factor(form))]
    return list(dict.fromkeys(forms))


@dataclass(frozen=True)
class _Tail:
    """A nonterminal N such that most rules used directly on ⊥ come in pairs aβ and aβN.

    Then ⊥ in state loop can stand for "N or nothing": of each pair only aβ is needed, after which the
    automaton either accepts or continues like N. The nonterminals derived on ⊥ are S, N, and each M for which
    A → aM has no partner with N and A is derived on ⊥; such an M is kept in the state. The weight of aβN must
    be that of aβ times a constant ratio.
    """

    symbol: Nonterminal
    ratio: float
    on_bottom: tuple[Nonterminal, ...]
    alone: frozenset[Rule]
    """The rules A → a and A → aM without a partner, for A derived on ⊥."""


def _tails(grammar: CFG) -> list[_Tail | None]:
    """Return the first tails that are possible, and None for no tail."""
    found = [tail for N in grammar.nonterminals[1:] if (tail := _tail(grammar, N)) is not None]
    return [*found[:3], None]


def _tail(grammar: CFG, symbol: Nonterminal) -> _Tail | None:
    on_bottom = [grammar.start, symbol]
    ratios: list[float] = []
    alone: list[Rule] = []
    for left in on_bottom:  # grows
        weights = {rule.right: rule.weight for rule in grammar.rules_for(left)}
        for rule in grammar.rules_for(left):
            if not rule.right:
                continue
            *first, last = rule.right
            is_long = last == symbol and tuple(first) in weights
            is_short = (*rule.right, symbol) in weights
            if (is_long and is_short) or (not is_long and not is_short and len(rule.right) > 2):
                return None
            if is_short:
                ratios.append(weights[*rule.right, symbol] / rule.weight)
            elif not is_long:
                alone.append(rule)
                if isinstance(last, Nonterminal) and last not in on_bottom:
                    on_bottom.append(last)
    if not ratios or not all(math.isclose(r, ratios[0], rel_tol=1e-13) for r in ratios):
        return None
    return _Tail(symbol, ratios[0], tuple(on_bottom), frozenset(alone))


@dataclass(frozen=True)
class _Builder:
    """The construction of one variant."""

    grammar: CFG
    tail: _Tail | None
    loop: bool
    """Whether the top symbol may hold what comes next; otherwise the state always does."""
    push_same: bool
    """Whether A → aBA pushes B."""
    push_last: bool
    """Whether, in X before x, X → aB pushes B."""

    def build(self) -> RestrictedPDA:
        accept = {LOOP, START} if derives_empty(self.grammar) else {LOOP}
        build = restricted_class(self.grammar.weighted)
        states = frozenset(accept if self.tail is None else accept | {END})
        return build(tuple(self._transitions()), START, states)

    def _transitions(self) -> Iterator[Transition]:
        names = {A: f"{A}." for A in self.grammar.nonterminals} | {self.grammar.start: START}
        others = self.grammar.nonterminals[1:]
        tops = {self._symbol(A.name): A for A in others}
        for rule in self.grammar.rules:
            if rule.right and rule.left != self.grammar.start:
                yield from (self._before(rule, x, names, tops) for x in (*tops, BOTTOM))
                if self.loop:
                    yield self._on_top(rule, names)
        if self.tail is None:
            for rule in self.grammar.rules_for(self.grammar.start):
                if rule.right:
                    yield self._before(rule, BOTTOM, names, tops)
        else:
            yield from self._on_bottom(self.tail, names, tops)

    def _on_bottom(
        self, tail: _Tail, names: dict[Nonterminal, str], tops: dict[str, Nonterminal]
    ) -> Iterator[Transition]:
        """Yield the transitions of S, N and others on ⊥, where ⊥ in state loop means "N or nothing"."""
        states = {A: f"{A}.." for A in tail.on_bottom} | {self.grammar.start: START}
        for left in tail.on_bottom:
            rules = [rule for rule in self.grammar.rules_for(left) if rule.right]
            rights = {rule.right for rule in rules}
            for rule in rules:
                last = rule.right[-1]
                if rule in tail.alone:
                    target = states[last] if isinstance(last, Nonterminal) else END
                    a = str(rule.right[0])
                    step = Transition(states[left], a, (BOTTOM,), target, (BOTTOM,), rule.weight)
                elif last == tail.symbol and rule.right[:-1] in rights:
                    continue
                else:
                    step = replace(self._before(rule, BOTTOM, names, tops), state=states[left])
                yield step
                if left == tail.symbol:
                    yield replace(step, state=LOOP, weight=step.weight * tail.ratio)

    def _symbol(self, name: str) -> str:
        return f"{name}_" if name == BOTTOM else name

    def _before(
        self, rule: Rule, x: str, names: dict[Nonterminal, str], tops: dict[str, Nonterminal]
    ) -> Transition:
        """Return the transition of a rule of X in the configuration X before x."""
        state, a = names[rule.left], str(rule.right[0])
        if not rule.variables:
            if self.loop or x == BOTTOM:
                return Transition(state, a, (x,), LOOP, (x,), rule.weight)
            return Transition(state, a, (x,), names[tops[x]], (), rule.weight)
        first, *rest = rule.variables
        if rest:
            return Transition(state, a, (x,), names[first], (x, self._symbol(rest[0].name)), rule.weight)
        if self.loop and self.push_last:
            return Transition(state, a, (x,), LOOP, (x, self._symbol(first.name)), rule.weight)
        return Transition(state, a, (x,), names[first], (x,), rule.weight)

    def _on_top(self, rule: Rule, names: dict[Nonterminal, str]) -> Transition:
        """Return the transition of a rule of A in state loop with A on top."""
        top, a = self._symbol(rule.left.name), str(rule.right[0])
        symbols = [self._symbol(A.name) for A in rule.variables]
        if len(symbols) < 2:
            return Transition(LOOP, a, (top,), LOOP, tuple(symbols), rule.weight)
        if self.push_same and symbols[1] == top:
            return Transition(LOOP, a, (top,), LOOP, (top, symbols[0]), rule.weight)
        return Transition(LOOP, a, (top,), names[rule.variables[0]], (symbols[1],), rule.weight)
