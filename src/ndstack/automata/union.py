"""The union of restricted PDAs, with the accept states of each part (sections 8.3.1 and 8.3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ndstack.automata.pda import BOTTOM, RestrictedPDA, Transition, restricted_class
from ndstack.errors import AutomatonError

START = "s"


@dataclass(frozen=True)
class UnionPDA:
    """A restricted PDA that runs one of several automata, and the accept states of each.

    A string is in the union of the languages if some run ends in an accept state of any part with ⊥ on top,
    and in their intersection if there is such a run for every part.
    """

    pda: RestrictedPDA
    parts: tuple[frozenset[str], ...]


def union(automata: Sequence[RestrictedPDA]) -> UnionPDA:
    """Return the standard construction: disjoint states, and one start state s in place of each part's.

    A part whose start state can be entered again first gets a separate start state. Stack symbols are shared,
    because runs of different parts never meet and a smaller Γ is cheaper. The weight of a string is the sum
    of its weights in the parts. The empty string is an exception: its run has weight 1.
    """
    if not automata:
        raise AutomatonError("union of no automata; give at least one")
    transitions: list[Transition] = []
    parts: list[frozenset[str]] = []
    for number, pda in enumerate(automata, 1):
        pda = _isolate_start(_rename_bottom(pda))
        names = {q: f"{number}.{q}" for q in pda.states} | {pda.start: START}
        transitions += [replace(t, state=names[t.state], target=names[t.target]) for t in pda.transitions]
        parts.append(frozenset(names[q] for q in pda.accept))
    build = restricted_class(any(pda.weighted for pda in automata))
    return UnionPDA(build(tuple(transitions), START, frozenset().union(*parts)), tuple(parts))


def _isolate_start(pda: RestrictedPDA) -> RestrictedPDA:
    """Return the same automaton with a start state that no transition enters."""
    if all(t.target != pda.start for t in pda.transitions):
        return pda
    start = "start"
    while start in pda.states:
        start += "_"
    copies = tuple(replace(t, state=start) for t in pda.from_state(pda.start))
    accept = pda.accept | ({start} if pda.start in pda.accept else frozenset())
    return replace(pda, transitions=(*copies, *pda.transitions), start=start, accept=accept)


def _rename_bottom(pda: RestrictedPDA) -> RestrictedPDA:
    """Return the automaton with ⊥ as its bottom symbol; a symbol that was called ⊥ takes the old name."""
    if pda.bottom == BOTTOM:
        return pda
    swap = {pda.bottom: BOTTOM, BOTTOM: pda.bottom}

    def rename(stack: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(swap.get(x, x) for x in stack)

    transitions = tuple(replace(t, pop=rename(t.pop), push=rename(t.push)) for t in pda.transitions)
    return replace(pda, transitions=transitions, bottom=BOTTOM)
