"""Which transitions of a restricted PDA take part in some accepting run: Lang's algorithm without time.

An item (o, c) says that a configuration of type c = (state, top symbol) can be reached whose top stands
on one of type o (None under the first symbol). Items are derived forward by the rules of section 4.4 and
marked backward from those that accept.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from ndstack.automata.pda import RestrictedPDA, Transition

Type = tuple[str, str]
Item = tuple[Type | None, Type]
Derivation = tuple[tuple[Item, ...], Transition]

P = TypeVar("P", bound=RestrictedPDA)


def trim_restricted(pda: P) -> P:
    """The same automaton without the transitions and accept states that no accepting run uses."""
    derivations = _derive(pda)
    goals = [(o, c) for o, c in derivations if c[0] in pda.accept and c[1] == pda.bottom]
    useful, open_ = set(goals), list(goals)
    used: set[Transition] = set()
    while open_:
        for premises, transition in derivations[open_.pop()]:
            used.add(transition)
            new = set(premises) - useful
            useful |= new
            open_ += new
    kept = tuple(t for t in pda.transitions if t in used)
    return replace(pda, transitions=kept, accept=frozenset(c[0] for _, c in goals))


def _derive(pda: RestrictedPDA) -> dict[Item, list[Derivation]]:
    """All items, each with the ways to derive it."""
    first: Item = (None, (pda.start, pda.bottom))
    derivations: dict[Item, list[Derivation]] = {first: []}
    origins: dict[Type, list[Type | None]] = {}
    poppable: dict[Type, list[tuple[Item, Transition]]] = {}  # pops of what stands on a type
    by_type: dict[Type, list[Transition]] = {}
    for t in pda.transitions:
        by_type.setdefault((t.state, t.pop[0]), []).append(t)

    def conclusions(item: Item) -> Iterator[tuple[Item, Derivation]]:
        origin, current = item
        for t in by_type.get(current, ()):
            if t.action == "push":
                yield (current, (t.target, t.push[1])), ((item,), t)
            elif t.action == "replace":
                yield (origin, (t.target, t.push[0])), ((item,), t)
            elif origin is not None:
                poppable.setdefault(origin, []).append((item, t))
                for under in origins.get(origin, ()):
                    below: Item = (under, origin)
                    yield (under, (t.target, origin[1])), ((below, item), t)
        for above, t in poppable.get(current, ()):
            yield (origin, (t.target, current[1])), ((item, above), t)

    open_ = [first]
    while open_:
        item = open_.pop()
        origins.setdefault(item[1], []).append(item[0])
        for conclusion, derivation in list(conclusions(item)):
            if conclusion not in derivations:
                derivations[conclusion] = []
                open_.append(conclusion)
            derivations[conclusion].append(derivation)
    return derivations
