"""From grammars to restricted PDAs and back (section 4.3): the lemmas as functions.

    CFG --two_greibach--> 2-GNF --bottom_marked--> bottom-marked PDA --restrict--> restricted PDA
    PDA --to_grammar--> CFG

The proof goes by way of 2-GNF, because a transition cannot replace the top symbol and push in one step.
`bottom_marked` takes grammars in GNF as well and lets the automaton do the substitution that leads to
2-GNF as it reads, with far fewer states and transitions; `to_restricted` does that. All functions keep
the weights of strings, since derivations and accepting runs correspond one to one.
"""

from collections import deque
from collections.abc import Iterator

from ndstack.automata.pda import (
    BOTTOM,
    PDA,
    BottomMarkedPDA,
    RestrictedPDA,
    RestrictedWPDA,
    Stack,
    Transition,
    WeightedBottomMarkedPDA,
    show_stack,
)
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triple_construction import find_grammar
from ndstack.errors import AutomatonError, GrammarError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule, Symbol, show_symbol
from ndstack.grammars.greibach import ASK_THE_GRAMMAR, greibach, is_greibach, is_two_greibach

START, LOOP = "q0", "loop"
MOST_TRANSITIONS = 50_000
"""How large an automaton may become; a grammar that needs more is refused within seconds."""


def bottom_marked(grammar: CFG) -> BottomMarkedPDA:
    """Lemma 3: a grammar in 2-GNF or GNF as a bottom-marked PDA with almost restricted transitions.

    The stack holds the unclosed constituents, the next one on top. A → a pops A, A → aB replaces A by B,
    and A → aX₁⋯X_m with m ≥ 2 takes two steps: replace A by X_m on reading a, then read the next symbol
    as the beginning of X₁ and push the rest. The proof gives each rule a state of its own for the second
    step; here the state is what is still to be done, X₁⋯X_{m-1}, and rules that go on alike share it.
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
    empty = [rule for rule in grammar.rules if not rule.right]
    if empty and grammar.weighted and empty[0].weight != 1:
        raise AutomatonError(
            f"rule {empty[0]} weighs {empty[0].weight:g}: an automaton that reads a symbol a step gives "
            "the empty string weight 0 or 1; leave that rule out and treat the empty string apart"
        )
    build = WeightedBottomMarkedPDA if grammar.weighted else BottomMarkedPDA
    accept = {LOOP, START} if empty else {LOOP}
    return build((*first, *loop), START, frozenset(accept))


def check_no_bottom(grammar: CFG) -> None:
    """Nonterminals become stack symbols, and none may be taken for the bottom symbol."""
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
    """Ways to read one symbol of X₁X₂⋯: the symbol, what is left to derive, the weight."""
    first, *rest = symbols
    if isinstance(first, str):
        yield first, rest, 1.0
    else:
        for rule in grammar.rules_for(first):
            yield str(rule.right[0]), [*rule.right[1:], *rest], rule.weight


def restrict(pda: BottomMarkedPDA, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """Lemma 4: one stack symbol stands for a string of the old ones, so that a push pushes one.

    The proof takes all strings up to a length; here only those that can occur are made, from ⊥ upwards,
    and what no accepting run uses is trimmed. An automaton with more than `most` transitions before that is
    refused.
    """
    for t in pda.transitions:
        _check_almost_restricted(t)
    names: dict[Stack, str] = {(x,): x for x in pda.stack_alphabet}
    taken = set(names.values())
    by_top: dict[Stack, list[Transition]] = {}
    for t in pda.transitions:
        by_top.setdefault(t.pop, []).append(t)

    def name(string: Stack) -> str:
        if string not in names:
            if pda.bottom in string:
                raise AutomatonError(
                    f"the stack symbol {pda.bottom} comes to lie among others in {show_stack(string)} and is "
                    "not seen as the bottom symbol there; convert the automaton with to_restricted()"
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
    build = RestrictedWPDA if pda.weighted else RestrictedPDA
    return trim_restricted(build(tuple(transitions), pda.start, pda.accept, pda.bottom))


def to_restricted(machine: CFG | PDA, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """An equivalent restricted PDA for any grammar or PDA (proposition 1).

    Args:
        machine: a grammar, or an automaton of any kind.
        most: how many transitions it may have, before those that no accepting run uses are dropped; a machine
            that needs more is refused.
    """
    if isinstance(machine, RestrictedPDA):
        return machine
    if isinstance(machine, CFG):
        return restrict_greibach(_name_terminals(greibach(machine, most // 10), machine), most)
    grammar = find_grammar(machine)
    return nothing(machine) if grammar is None else to_restricted(grammar, most)


def _name_terminals(form: CFG, original: CFG) -> CFG:
    """The normal form with the variables that it adds for terminals, T → b, called after these: 'b'."""
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
    """A restricted PDA for the empty language, with weights if this one has some."""
    return (RestrictedWPDA if pda.weighted else RestrictedPDA)((), START, frozenset())


def restrict_greibach(grammar: CFG, most: int = MOST_TRANSITIONS) -> RestrictedPDA:
    """Lemmas 3 and 4 in a row: a restricted PDA for a grammar in Greibach normal form."""
    return restrict(bottom_marked(grammar), most)


def _check_almost_restricted(t: Transition) -> None:
    if not t.read or len(t.pop) != 1 or (len(t.push) > 1 and t.push[:1] != t.pop):
        raise AutomatonError(
            f"transition {t} is not of the form x → xy₁⋯y_k, x → y or x → ε that reads a symbol; "
            "convert the automaton with to_restricted()"
        )


def _on_string(t: Transition, top: Stack) -> tuple[Stack, ...]:
    """What a transition on x leaves of the symbol αx, and above it."""
    if t.action == "pop":
        return (top[:-1],) if len(top) > 1 else ()
    if t.action == "replace":
        return ((*top[:-1], *t.push),)
    return (top, t.push[1:])
