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
from itertools import accumulate, product

from ndstack.automata.conversion import MOST_TRANSITIONS, START, check_no_bottom, nothing, restrict_greibach
from ndstack.automata.merging import EFFORT, merge_types
from ndstack.automata.pda import BOTTOM, PDA, RestrictedPDA, RestrictedWPDA, Transition
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triple_construction import find_grammar
from ndstack.errors import AutomatonError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.greibach import ASK_THE_GRAMMAR, Cut, greibach, quadratic_greibach
from ndstack.grammars.reduction import factor

__all__ = ["compact", "variants"]

LOOP, END = "loop", "end"
MOST_RULES = 5000
"""A grammar with more rules than this in Greibach normal form is refused."""
MANY = 3000
"""An automaton with more transitions than this is left as it is."""
TRIED = 12
"""How many automata, the smallest ones, are made smaller still and compared: fewer if they have more than
`MANY` transitions together."""


def compact(machine: CFG | PDA) -> RestrictedPDA:
    """An equivalent restricted PDA that is as small as we can make it; weights are kept."""
    return min(variants(machine), key=_cost)


def variants(machine: CFG | PDA) -> list[RestrictedPDA]:
    """Small restricted PDAs equivalent to a grammar or PDA: some with few states, some with few symbols."""
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
    """About how many transitions the automata of a grammar have before trimming."""
    return len(form.rules) * len(form.nonterminals)


def _cost(pda: RestrictedPDA) -> int:
    """|Q||Γ|, with one state more for the trap of section 8.3."""
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
    """Quadratic Greibach normal forms of the grammar, each different from the others."""
    cuts: tuple[Cut, ...] = ("rest", "first", "last")
    forms = [quadratic_greibach(grammar, cut, MOST_RULES) for cut in cuts]
    if not grammar.weighted:
        forms += [factored for form in forms if (factored := factor(form))]
    return list(dict.fromkeys(forms))


@dataclass(frozen=True)
class _Tail:
    """N such that what is derived on ⊥ mostly comes as aβ or aβN for the same aβ.

    Then ⊥ in state loop can stand for "N or nothing": of each pair only aβ is needed, and once that is done
    the automaton accepts or goes on like N. On ⊥ are derived S, N, and M if A → aM has no partner with N and
    A is derived on ⊥; such M are kept in the state. Weights of aβN must be those of aβ times one ratio.
    """

    symbol: Nonterminal
    ratio: float
    on_bottom: tuple[Nonterminal, ...]
    alone: frozenset[Rule]
    """The rules A → a and A → aM without partner, for A on ⊥."""


def _tails(grammar: CFG) -> list[_Tail | None]:
    """The tails that fit, and none."""
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
        transitions = tuple(self._transitions())
        build = RestrictedWPDA if self.grammar.weighted else RestrictedPDA
        accept = {LOOP, START} if empty else {LOOP}
        return build(transitions, START, frozenset(accept if self.tail is None else accept | {END}))

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
        """The steps of S, N and others on ⊥, where ⊥ in state loop means N or nothing."""
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
