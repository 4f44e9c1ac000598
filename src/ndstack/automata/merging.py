"""Merging states and stack symbols of a restricted PDA that no run can tell apart.

A type is a pair (state, top symbol). Let f rename states and stack symbols, several to one. If all reachable
types with one image have the same transitions up to f and agree on acceptance, then f maps configurations to
configurations so that a configuration and its image can do the same: the automaton of images accepts the
same strings and, with weights, gives them the same weights (those of transitions that become equal add up).
Types that cannot be reached are free: states with nothing in common merge if they meet different symbols.

`merge_types` takes the coarsest f found by refinement, then merges pair by pair what still can be merged.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TypeVar

from ndstack.automata.pda import RestrictedPDA, Transition
from ndstack.automata.trimming import reachable_types, trim_restricted

P = TypeVar("P", bound=RestrictedPDA)

Type = tuple[str, str]
Move = tuple[str, str, str, str]  # symbol read, action, target, new top symbol ("" for pop)
Behaviour = tuple[bool, frozenset[tuple[Move, float]]]
Thing = tuple[str, str]  # ("state", q) or ("symbol", x)
Outline = tuple[bool, frozenset[tuple[str, str]]]  # acceptance, and what is read with which action
Renaming = dict[Thing, Thing]


EFFORT = 60_000
"""How many configuration types are looked at, at most, in trying to merge pairs: about a second."""


def merge_types(pda: P, effort: int = EFFORT) -> P:
    """An equivalent automaton with fewer states and stack symbols, trimmed.

    Args:
        pda: any restricted automaton.
        effort: when to stop trying pairs, so that large automata do not take minutes; see `EFFORT`.
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
    """What the reachable types of an automaton can do."""

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
        """Acceptance and transitions of a type, up to the renaming."""
        total: Counter[Move] = Counter()
        for move, weight in self.by_type[current]:
            image = _image(move, f)
            total[image] = total[image] + weight if self.weighted else 1  # type: ignore[assignment]
        return current in self.accepting, frozenset(total.items())

    def refine(self) -> Renaming:
        """The coarsest renaming under which things that become one do the same with everything."""
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
        """Whether two things of a kind accept alike and read the same symbols with the same actions.

        That depends on no renaming; `join` fails for things that do not, with more work.
        """
        of_one, of_other = self.outlines[one], self.outlines[other]
        return all(of_one[partner] == of_other[partner] for partner in of_one.keys() & of_other.keys())

    def join(self, f: Renaming, one: Thing, other: Thing) -> Renaming | None:
        """f with two things merged, and what else has to be for their sake; None if that cannot be."""
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
        """What must be merged for two types to do the same, where that is beyond doubt."""
        (accepts_a, moves_a), (accepts_b, moves_b) = self.behaviour(a, f), self.behaviour(b, f)
        if accepts_a != accepts_b:
            return None
        only_a, only_b = _by_kind(moves_a - moves_b), _by_kind(moves_b - moves_a)
        if only_a.keys() != only_b.keys():
            return None
        for kind, of_a in only_a.items():
            of_b = only_b[kind]
            if len(of_a) == len(of_b) == 1:
                pairs = [(("state", of_a[0][2]), ("state", of_b[0][2]))]
                if of_a[0][3]:
                    pairs.append((("symbol", of_a[0][3]), ("symbol", of_b[0][3])))
                return [pair for pair in pairs if f[pair[0]] != f[pair[1]]] or None
        return None


def _move(t: Transition) -> Move:
    return t.read, t.action, t.target, t.push[-1] if t.push else ""


def _image(move: Move, f: Renaming) -> Move:
    read, action, target, top = move
    return read, action, f["state", target][1], f["symbol", top][1] if top else ""


def _by_kind(moves: Iterable[tuple[Move, float]]) -> dict[tuple[str, str, float], list[Move]]:
    kinds: dict[tuple[str, str, float], list[Move]] = {}
    for move, weight in moves:
        kinds.setdefault((move[0], move[1], weight), []).append(move)
    return kinds


def _unite(f: Renaming, one: Thing, other: Thing) -> Renaming:
    """The name of the first of the two is kept, so that the start state and ⊥ keep theirs."""
    images = {f[one], f[other]}
    if len(images) == 1:
        return f
    kept = next(thing for thing in f if thing in images)
    (gone,) = images - {kept}
    return {thing: kept if image == gone else image for thing, image in f.items()}


def _rename(pda: P, moves: _Moves, f: Renaming) -> P:
    """The automaton of images, each type with the transitions of one of those it stands for."""
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
