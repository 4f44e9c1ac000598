"""Removal of the transitions of a restricted PDA that no accepting run uses.

A type is a pair (state, top symbol). A forward pass finds the reachable types, with the states in which their
symbol can be popped and the symbols that can lie beneath it. A backward pass finds the types from which
acceptance is possible. Every transition of an accepting run is kept. A few others may be kept as well,
because symbols beneath a type are not distinguished by how they came there.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from ndstack.automata.pda import RestrictedPDA, Transition
from ndstack.grammars.graphs import grouped

Type = tuple[str, str]

P = TypeVar("P", bound=RestrictedPDA)


def trim_restricted(pda: P) -> P:
    """Return the same automaton without transitions and accept states that cannot take part in acceptance."""
    reach = _Reach(pda)
    live = reach.live(pda)
    kept = tuple(t for t in pda.transitions if reach.leads_to(t, live))
    accept = frozenset(q for q in pda.accept if (q, pda.bottom) in reach.ends)
    return replace(pda, transitions=kept, accept=accept)


def reachable_types(pda: RestrictedPDA) -> set[Type]:
    """Return the pairs (state, top symbol) that occur in some run."""
    return set(_Reach(pda).ends)


@dataclass(init=False)
class _Reach:
    ends: dict[Type, set[str]]
    """For each reachable type, the states in which its symbol can be popped."""
    beneath: dict[Type, set[str]]
    """For each reachable type, the symbols that can lie beneath its symbol."""

    def __init__(self, pda: RestrictedPDA) -> None:
        first = (pda.start, pda.bottom)
        self.ends, self.beneath = {first: set()}, {first: set()}
        by_type = grouped(pda.transitions, lambda t: (t.state, t.pop[0]))
        before = -1
        while before != (before := self._size()):
            for current in list(self.ends):
                for t in by_type.get(current, ()):
                    self._take(current, t)

    def _size(self) -> int:
        return sum(len(self.ends[c]) + len(self.beneath[c]) + 1 for c in self.ends)

    def _take(self, current: Type, t: Transition) -> None:
        if t.action == "pop":
            self.ends[current].add(t.target)
        elif t.action == "replace":
            self._pass_on(current, (t.target, t.push[0]))
        else:
            above = (t.target, t.push[1])
            self.ends.setdefault(above, set())
            self.beneath.setdefault(above, set()).add(current[1])
            for state in list(self.ends[above]):
                self._pass_on(current, (state, current[1]))

    def _pass_on(self, current: Type, following: Type) -> None:
        """Record that a type of the same stack height follows: it has the same symbols beneath and ends."""
        self.beneath.setdefault(following, set()).update(self.beneath[current])
        self.ends[current] |= self.ends.setdefault(following, set())

    def live(self, pda: RestrictedPDA) -> set[Type]:
        """Return the reachable types from which an accepting configuration can be reached."""
        found = {c for c in self.ends if c[0] in pda.accept and c[1] == pda.bottom}
        rest = [t for t in pda.transitions if (t.state, t.pop[0]) in self.ends]
        while True:
            rest = [t for t in rest if (t.state, t.pop[0]) not in found]
            new = {(t.state, t.pop[0]) for t in rest if self.leads_to(t, found)}
            if not new:
                return found
            found |= new

    def leads_to(self, t: Transition, goals: set[Type]) -> bool:
        """Return whether the transition can be taken and leads to one of the goals."""
        current = (t.state, t.pop[0])
        if current not in self.ends:
            return False
        if t.action == "pop":
            return any((t.target, x) in goals for x in self.beneath[current])
        above = (t.target, t.push[-1])
        if t.action == "replace":
            return above in goals
        return above in goals or any((q, current[1]) in goals for q in self.ends[above])
