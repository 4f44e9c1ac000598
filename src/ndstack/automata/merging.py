"""Merging states and stack symbols of a restricted PDA that no run can tell apart.

A type is a pair (state, top symbol). Let f rename states and stack symbols, possibly several to one. If all
reachable types with the same image agree on acceptance and have the same transitions up to f, then a
configuration and its image have the same continuations. The automaton of images therefore accepts the same
strings and gives them the same weights; the weights of transitions that become equal are added. Unreachable
types impose no condition, so that two states can be merged if they occur with different top symbols.

`merge_types` takes the coarsest f found by refinement, then merges pair by pair what can still be merged.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TypeVar

from ndstack.automata.pda import RestrictedPDA, Transition
from ndstack.automata.trimming import reachable_types, trim_restricted
from ndstack.grammars.graphs import grouped

P = TypeVar("P", bound=RestrictedPDA)

Type = tuple[str, str]
Move = tuple[str, str, str, str]
"""The symbol read, the action, the target state and the new top symbol ("" for a pop)."""
Behaviour = tuple[bool, frozenset[tuple[Move, float]]]
Thing = tuple[str, str]
"""A state ("state", q) or a stack symbol ("symbol", x)."""
Outline = tuple[bool, frozenset[tuple[str, str]]]
"""Whether a type accepts, and which symbols it reads with which actions."""
Renaming = dict[Thing, Thing]

EFFORT = 60_000
"""The largest number of types that are examined when pairs are tried, which takes about a second."""


def merge_types(pda: P, effort: int = EFFORT) -> P:
    """Return an equivalent automaton with fewer states and stack symbols, trimmed.

    Args:
        pda: any restricted automaton.
        effort: the bound on the work for trying pairs, so that large automata do not take minutes.
    """
    pda = trim_restricted(pda)
    while True:
        results = [_merged(pda, order, effort) for order in ("state", "symbol")]
        best = min(results, key=lambda p: len(p.states) * len(p.stack_alphabet))
        if _size(best) == _size(pda):
            return best
        pda = trim_restricted(best)


def _size(pda: RestrictedPDA) -> tuple[int, int]:
    return len(pda.states), len(pda.stack_alphabet)


def _merged(pda: P, first: str, effort: int) -> P:
    moves = _Moves(pda)
    renaming = moves.refine()
    kinds = [first, "symbol" if first == "state" else "state"]
    for kind in kinds:
        for one, other in combinations([thing for thing in moves.things if thing[0] == kind], 2):
            if moves.work > effort:
                break
            if renaming[one] != renaming[other] and moves.may_join(one, other):
                renaming = moves.join(renaming, one, other) or renaming
    return _rename(pda, moves, renaming)


class _Moves:
    """The transitions of the reachable types of an automaton."""

    def __init__(self, pda: RestrictedPDA) -> None:
        self.weighted = pda.weighted
        self.things: list[Thing] = [
            *(("state", q) for q in pda.states),
            *(("symbol", x) for x in pda.stack_alphabet),
        ]
        self.accepting = {(q, pda.bottom) for q in pda.accept}
        self.by_type: dict[Type, list[tuple[Move, float]]] = {t: [] for t in sorted(reachable_types(pda))}
        for t in pda.transitions:
            if (t.state, t.pop[0]) in self.by_type:
                self.by_type[t.state, t.pop[0]].append((_move(t), t.weight))
        self.outlines: dict[Thing, dict[str, Outline]] = {thing: {} for thing in self.things}
        for (q, x), moves in self.by_type.items():
            outline = ((q, x) in self.accepting, frozenset(move[:2] for move, _ in moves))
            self.outlines["state", q][x] = self.outlines["symbol", x][q] = outline
        self.work = 0

    def behaviour(self, current: Type, f: Renaming) -> Behaviour:
        """Return whether a type accepts, and its transitions up to the renaming."""
        total: dict[Move, float] = {}
        for move, weight in self.by_type[current]:
            image = _image(move, f)
            total[image] = total.get(image, 0) + weight if self.weighted else 1
        return current in self.accepting, frozenset(total.items())

    def refine(self) -> Renaming:
        """Return the coarsest renaming under which merged things behave alike with every partner."""
        f: Renaming = {thing: (thing[0], "") for thing in self.things}
        while True:
            done: dict[Thing, list[tuple[str, Behaviour]]] = {thing: [] for thing in self.things}
            for q, x in self.by_type:
                behaviour = self.behaviour((q, x), f)
                done["state", q].append((x, behaviour))
                done["symbol", x].append((q, behaviour))
            classes: dict[tuple[str, frozenset[tuple[str, Behaviour]]], Thing] = {}
            finer = {
                thing: classes.setdefault((thing[0], frozenset(done[thing])), thing) for thing in self.things
            }
            if len(classes) == len(set(f.values())):
                return finer
            f = finer

    def may_join(self, one: Thing, other: Thing) -> bool:
        """Return whether two things accept alike and read the same symbols with the same actions.

        This condition is necessary for `join`, independent of the renaming, and cheaper to check.
        """
        of_one, of_other = self.outlines[one], self.outlines[other]
        return all(of_one[partner] == of_other[partner] for partner in of_one.keys() & of_other.keys())

    def join(self, f: Renaming, one: Thing, other: Thing) -> Renaming | None:
        """Return f with two things merged, and whatever must then be merged too; None if it is impossible."""
        f = _unite(f, one, other)
        while True:
            self.work += len(self.by_type)
            groups: dict[tuple[Thing, Thing], list[Type]] = {}
            for q, x in self.by_type:
                groups.setdefault((f["state", q], f["symbol", x]), []).append((q, x))
            pairs = (pair for group in groups.values() for pair in pairwise(group))
            differing = next((p for p in pairs if self.behaviour(p[0], f) != self.behaviour(p[1], f)), None)
            if differing is None:
                return f
            forced = self._forced(*differing, f)
            if forced is None:
                return None
            for pair in forced:
                f = _unite(f, *pair)

    def _forced(self, a: Type, b: Type, f: Renaming) -> list[tuple[Thing, Thing]] | None:
        """Return what must be merged for two types to behave alike; None if that is not determined."""
        (accepts_a, moves_a), (accepts_b, moves_b) = self.behaviour(a, f), self.behaviour(b, f)
        if accepts_a != accepts_b:
            return None
        only_a, only_b = _by_kind(moves_a - moves_b), _by_kind(moves_b - moves_a)
        if only_a.keys() != only_b.keys():
            return None
        for kind, of_a in only_a.items():
            of_b = only_b[kind]
            if len(of_a) == len(of_b) == 1:
                (_, _, state_a, top_a), (_, _, state_b, top_b) = of_a[0][0], of_b[0][0]
                pairs = [(("state", state_a), ("state", state_b))]
                if top_a:
                    pairs.append((("symbol", top_a), ("symbol", top_b)))
                return [pair for pair in pairs if f[pair[0]] != f[pair[1]]] or None
        return None


def _move(t: Transition) -> Move:
    return t.read, t.action, t.target, t.push[-1] if t.push else ""


def _image(move: Move, f: Renaming) -> Move:
    read, action, target, top = move
    return read, action, f["state", target][1], f["symbol", top][1] if top else ""


def _by_kind(moves: Iterable[tuple[Move, float]]) -> dict[tuple[str, str, float], list[tuple[Move, float]]]:
    return grouped(moves, lambda pair: (pair[0][0], pair[0][1], pair[1]))


def _unite(f: Renaming, one: Thing, other: Thing) -> Renaming:
    """Return f with two things merged under the name of the first; the start state and ⊥ thus keep theirs."""
    images = {f[one], f[other]}
    if len(images) == 1:
        return f
    kept = next(thing for thing in f if thing in images)
    (gone,) = images - {kept}
    return {thing: kept if image == gone else image for thing, image in f.items()}


def _rename(pda: P, moves: _Moves, f: Renaming) -> P:
    """Return the automaton of images, in which a type has the transitions of one of its originals."""
    seen: dict[tuple[Thing, Thing], Type] = {}
    for q, x in moves.by_type:
        seen.setdefault((f["state", q], f["symbol", x]), (q, x))
    chosen = set(seen.values())

    def state(q: str) -> str:
        return f["state", q][1]

    transitions = tuple(
        replace(
            t,
            state=state(t.state),
            pop=tuple(f["symbol", x][1] for x in t.pop),
            target=state(t.target),
            push=tuple(f["symbol", x][1] for x in t.push),
        )
        for t in pda.transitions
        if (t.state, t.pop[0]) in chosen
    )
    accept = frozenset(state(q) for q in pda.accept if (q, pda.bottom) in moves.by_type)
    return replace(
        pda, transitions=transitions, start=state(pda.start), accept=accept, bottom=f["symbol", pda.bottom][1]
    )
