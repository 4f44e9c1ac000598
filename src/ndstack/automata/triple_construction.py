"""From a PDA to a grammar: the triple construction.

The nonterminal p-X-q derives what the automaton reads from the moment when it is in state p with X on top
until it has popped that X and is in state q. A marker is put under the stack, and accepting configurations
empty the rest of the stack. Accepting runs and derivations then correspond one to one, so weights are kept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ndstack.automata.pda import PDA, BottomMarkedPDA
from ndstack.errors import AutomatonError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule, WeightedCFG, fresh_nonterminal, trim
from ndstack.grammars.graphs import grouped
from ndstack.grammars.notation import NAME

# States and symbols that the construction adds begin with exactly one slash; see _shift.
FLOOR = "/floor"
FIRST, DRAIN, END = "/first", "/drain", "/end"

Ends = dict[tuple[str, str], set[str]]
"""For (p, X), the states in which that X can be popped."""


@dataclass(frozen=True)
class _Move:
    """A step that reads `read`, pops one symbol (none if "") and pushes symbols, the last one on top."""

    state: str
    read: str
    pop: str
    target: str
    push: tuple[str, ...] = ()
    weight: float = 1.0

    def above(self, top: str) -> tuple[str, ...]:
        """Return the symbols to be popped, first to last, before the stack below `top` is uncovered."""
        kept = () if self.pop else (top,)
        return (*reversed(self.push), *kept)


def to_grammar(pda: PDA) -> CFG:
    """Return a grammar for the language of any PDA; strings keep their weights."""
    grammar = find_grammar(pda)
    if grammar is None:
        raise AutomatonError("the automaton accepts no string, and a grammar generates at least one")
    return grammar


def find_grammar(pda: PDA) -> CFG | None:
    """Return the grammar of a PDA; None if the language is empty."""
    rules = _rules(pda)
    return (WeightedCFG if pda.weighted else CFG)(rules, rules[0].left) if rules else None


def _rules(pda: PDA) -> tuple[Rule, ...]:
    """Return the rules of the grammar, those of the start variable first; none if the language is empty."""
    by_state = grouped(_moves(pda), lambda move: move.state)
    ends = _ends(by_state)
    names: dict[tuple[str, str, str], Nonterminal] = {}
    taken: set[str] = set()

    def name(p: str, x: str, q: str) -> Nonterminal:
        if (p, x, q) not in names:
            label = f"{p}-{x}-{q}"
            label = label if re.fullmatch(NAME, label) else f"N{len(names)}"
            names[p, x, q] = fresh_nonterminal(label, taken)
        return names[p, x, q]

    start = name(FIRST, FLOOR, END)
    rules = [
        Rule(name(p, x, q), (*filter(None, [move.read]), *(name(*t) for t in triples)), move.weight)
        for p, x in ends
        for move in by_state.get(p, ())
        if move.pop in ("", x)
        for q, triples in _descents(move.target, move.above(x), ends)
    ]
    return tuple(sorted(trim(rules, start), key=lambda rule: rule.left != start))


def _ends(by_state: dict[str, list[_Move]]) -> Ends:
    """Return the pairs (p, X) that can occur, each with its end states."""
    ends: Ends = {(FIRST, FLOOR): set()}
    before = -1
    while before != (before := sum(1 + len(found) for found in ends.values())):
        for p, x in list(ends):
            for move in by_state.get(p, ()):
                if move.pop in ("", x):
                    states = {move.target}
                    for y in move.above(x):
                        states = set().union(*(ends.setdefault((s, y), set()) for s in states))
                    ends[p, x] |= states
    return ends


def _descents(
    state: str, symbols: tuple[str, ...], ends: Ends
) -> Iterator[tuple[str, tuple[tuple[str, str, str], ...]]]:
    """Yield the ways to pop the symbols one after the other: the end state, and the triples on the way."""
    if not symbols:
        yield state, ()
        return
    for after in sorted(ends.get((state, symbols[0]), ())):
        for end, rest in _descents(after, symbols[1:], ends):
            yield end, ((state, symbols[0], after), *rest)


def _moves(pda: PDA) -> Iterator[_Move]:
    yield _Move(FIRST, "", "", _shift(pda.start), tuple(map(_shift, pda.initial_stack)))
    for number, t in enumerate(pda.transitions):
        *first, last = list(map(_shift, reversed(t.pop))) or [""]
        state, read, weight = _shift(t.state), t.read, t.weight
        for i, x in enumerate(first):  # a move pops one symbol, so each but the deepest needs its own move
            between = f"/{number}/{i}"
            yield _Move(state, read, x, between, weight=weight)
            state, read, weight = between, "", 1.0
        yield _Move(state, read, last, _shift(t.target), tuple(map(_shift, t.push)), weight)
    top = _shift(pda.bottom) if isinstance(pda, BottomMarkedPDA) else ""
    for q in sorted(pda.accept):
        yield _Move(_shift(q), "", top, DRAIN)
    for x in pda.stack_alphabet:
        yield _Move(DRAIN, "", _shift(x), DRAIN)
    yield _Move(DRAIN, "", FLOOR, END)


def _shift(name: str) -> str:
    return f"/{name}" if name.startswith("/") else name
