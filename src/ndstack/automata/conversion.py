"""From grammars to restricted PDAs and back (section 4.3): the lemmas as functions.

    CFG --two_greibach--> 2-GNF --bottom_marked--> bottom-marked PDA --restrict--> restricted PDA
    PDA --to_grammar--> CFG

The proof uses 2-GNF because a transition cannot replace the top symbol and push in one step. `bottom_marked`
also takes grammars in GNF; the automaton then makes the substitution that leads to 2-GNF while it reads, with
far fewer states and transitions. `to_restricted` works this way. All functions keep the weights of strings,
because derivations and accepting runs correspond one to one.
"""

from collections import deque
from collections.abc import Iterator

from ndstack.automata.pda import (
    BOTTOM,
    PDA,
    BottomMarkedPDA,
    RestrictedPDA,
    Stack,
    Transition,
    WeightedBottomMarkedPDA,
    restricted_class,
    show_stack,
)
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triple_construction import find_grammar
from ndstack.errors import AutomatonError, GrammarError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule, Symbol, show_symbol
from ndstack.grammars.graphs import grouped
from ndstack.grammars.greibach import ASK_THE_GRAMMAR, greibach, is_greibach, is_two_greibach

START, LOOP = "q0", "loop"
MOST_TRANSITIONS = 50_000
"""The largest number of transitions; a grammar that needs more is refused within seconds."""


def bottom_marked(grammar: CFG) -> BottomMarkedPDA:
    """Return a bottom-marked PDA with almost restricted transitions for a grammar in GNF or 2-GNF (lemma 3).

    The stack holds the constituents that are still to be derived, the next one on top. A → a pops A, A → aB
    replaces A with B, and A → aX₁⋯X_m with m ≥ 2 takes two steps: replace A with X_m on reading a, then read
    the next symbol as the beginning of X₁ and push the rest. In the proof, each rule has a state of its own
    for the second step; here the state is what is still to be derived, X₁⋯X_{m-1}, so that rules share it.
    """
    if not (is_greibach(grammar) or is_two_greibach(grammar)):
        raise GrammarError(
            "the grammar is not in (2-)Greibach normal form; convert it with greibach() or two_greibach()"
        )
    check_no_bottom(grammar)
    loop = list(_loop_transitions(grammar))
    first = [
        Transition(START, t.read, (BOTTOM,), t.target, (BOTTOM, *t.push), t.weight)
        for t in loop
        if t.state == LOOP and t.pop == (grammar.start.name,)
    ]
    build = WeightedBottomMarkedPDA if grammar.weighted else BottomMarkedPDA
    accept = {LOOP, START} if derives_empty(grammar) else {LOOP}
    return build((*first, *loop), START, frozenset(accept))


def derives_empty(grammar: CFG) -> bool:
    """Return whether a grammar in Greibach normal form has S → ε, which must have weight 1."""
    empty = next((rule for rule in grammar.rules if not rule.right), None)
    if empty is not None and empty.weight != 1:
        raise AutomatonError(
            f"rule {empty} has weight {empty.weight:g}: an automaton that reads one symbol per step gives "
            "the empty string weight 0 or 1; remove that rule and treat the empty string separately"
        )
    return empty is not None


def check_no_bottom(grammar: CFG) -> None:
    """Refuse a nonterminal with the name of the bottom symbol, because nonterminals become stack symbols."""
    if any(A.name == BOTTOM for A in grammar.nonterminals):
        raise GrammarError(
            f"the nonterminal {BOTTOM} has the name of the bottom symbol; call it something else"
        )


def _loop_transitions(grammar: CFG) -> Iterator[Transition]:
    states: dict[tuple[Symbol, ...] | str, str] = {}
    second: dict[Transition, None] = {}
    for rule in grammar.rules:
        if not rule.right:
            continue
        A, a = rule.left.name, str(rule.right[0])
        pending, last = rule.right[1:-1], rule.right[-1]
        if len(rule.right) == 1:
            yield Transition(LOOP, a, (A,), LOOP, (), rule.weight)
        elif isinstance(last, str):  # A → ab
            state = states.setdefault(last, f"q{len(states) + 1}")
            yield Transition(LOOP, a, (A,), state, (A,), rule.weight)
            second[Transition(state, last, (A,), LOOP, ())] = None
        elif not pending:
            yield Transition(LOOP, a, (A,), LOOP, (last.name,), rule.weight)
        else:
            state = states.setdefault(pending, f"q{len(states) + 1}")
            yield Transition(LOOP, a, (A,), state, (last.name,), rule.weight)
            for b, rest, weight in _beginnings(grammar, pending):
                pushed = (last.name, *(str(X) for X in reversed(rest)))
                second[Transition(state, b, (last.name,), LOOP, pushed, weight)] = None
    yield from second


def _beginnings(grammar: CFG, symbols: tuple[Symbol, ...]) -> Iterator[tuple[str, list[Symbol], float]]:
    """Yield the ways to read one symbol of X₁X₂⋯: the symbol, what remains to be derived, the weight."""
    first, *rest = symbols
    if isinstance(first, str):
        yield first, rest, 1.0
    else:
        for rule in grammar.rules_for(first):
            yield str(rule.right[0]), [*rule.right[1:], *rest], rule.weight


def restrict(pda: BottomMarkedPDA, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """Return a restricted PDA, in which one stack symbol stands for a string of the old ones (lemma 4).

    The proof uses all strings up to a length; here only those that can occur are made, from ⊥ upwards, and
    transitions that no accepting run uses are trimmed. An automaton that has more than `most` transitions
    before trimming is refused.
    """
    for t in pda.transitions:
        _check_almost_restricted(t)
    names: dict[Stack, str] = {(x,): x for x in pda.stack_alphabet}
    taken = set(names.values())
    by_top = grouped(pda.transitions, lambda t: t.pop)

    def name(string: Stack) -> str:
        if string not in names:
            if pda.bottom in string:
                raise AutomatonError(
                    f"the stack symbol {pda.bottom} would become part of {show_stack(string)}, and would "
                    "not be the bottom symbol there; convert the automaton with to_restricted()"
                )
            label = f"[{' '.join(string)}]"
            while label in taken:
                label += "'"
            taken.add(label)
            names[string] = label
            open_.append(string)
        return names[string]

    open_ = deque(names)
    transitions: list[Transition] = []
    while open_:
        top = open_.popleft()
        for t in by_top.get(top[-1:], ()):
            pushed = tuple(name(string) for string in _on_string(t, top))
            transitions.append(Transition(t.state, t.read, (name(top),), t.target, pushed, t.weight))
        if len(transitions) > most:
            raise AutomatonError(
                f"the restricted automaton has more than {most:,} transitions, the limit; {ASK_THE_GRAMMAR}"
            )
    build = restricted_class(pda.weighted)
    return trim_restricted(build(tuple(transitions), pda.start, pda.accept, pda.bottom))


def to_restricted(machine: CFG | PDA, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """Return an equivalent restricted PDA for any grammar or PDA (proposition 1).

    Args:
        machine: a grammar, or an automaton of any kind.
        most: the largest number of transitions before trimming; a machine that needs more is refused.
    """
    if isinstance(machine, RestrictedPDA):
        return machine
    if isinstance(machine, CFG):
        return restrict_greibach(_name_terminals(greibach(machine, most // 10), machine), most)
    grammar = find_grammar(machine)
    return nothing(machine) if grammar is None else to_restricted(grammar, most)


def _name_terminals(form: CFG, original: CFG) -> CFG:
    """Return the normal form with each variable that it adds for a terminal, T → b, named after it: 'b'."""
    called: dict[Nonterminal, Nonterminal] = {}
    taken = {A.name for A in form.nonterminals}
    for A in form.nonterminals:
        rules = form.rules_for(A)
        if A in original.nonterminals or len(rules) > 1 or len(rules[0].right) != 1:
            continue
        name = show_symbol(rules[0].right[0])
        if name not in taken:
            called[A] = Nonterminal(name)
            taken.add(name)

    def rename(symbol: Symbol) -> Symbol:
        return called.get(symbol, symbol) if isinstance(symbol, Nonterminal) else symbol

    renamed = (Rule(called.get(r.left, r.left), tuple(map(rename, r.right)), r.weight) for r in form.rules)
    return type(form)(tuple(renamed), form.start)


def nothing(pda: PDA) -> RestrictedPDA:
    """Return a restricted PDA for the empty language, with weights if this one has weights."""
    return restricted_class(pda.weighted)((), START, frozenset())


def restrict_greibach(grammar: CFG, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """Return a restricted PDA for a grammar in Greibach normal form (lemma 3, then lemma 4)."""
    return restrict(bottom_marked(grammar), most)


def _check_almost_restricted(t: Transition) -> None:
    if not t.read or len(t.pop) != 1 or (len(t.push) > 1 and t.push[:1] != t.pop):
        raise AutomatonError(
            f"transition {t} is not of the form x → xy₁⋯y_k, x → y or x → ε that reads a symbol; "
            "convert the automaton with to_restricted()"
        )


def _on_string(t: Transition, top: Stack) -> tuple[Stack, ...]:
    """Return the symbols, as strings of old ones, into which a transition on x turns the symbol αx."""
    if t.action == "pop":
        return (top[:-1],) if len(top) > 1 else ()
    if t.action == "replace":
        return ((*top[:-1], *t.push),)
    return (top, t.push[1:])
