"""Pushdown automata as immutable, checked values (sections 2.3.2, 2.3.3 and 4.2).

In a general `PDA`, transitions pop and push strings and may read nothing; the automaton starts with an empty
stack and accepts by state. A `BottomMarkedPDA` starts with the bottom symbol on its stack, and accepts in an
accept state with the bottom symbol on top. A `RestrictedPDA` is bottom-marked; it reads one symbol per step
and pushes, replaces or pops one symbol. Each class has a weighted version. Transitions of weight 0 are
dropped; equal transitions are merged and their weights added. Stacks are written from bottom to top.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ndstack.errors import AutomatonError
from ndstack.grammars.graphs import grouped
from ndstack.html_tables import table

Stack = tuple[str, ...]

BOTTOM = "⊥"
"""The bottom symbol, unless an automaton has another one."""

_ACTIONS = ("pop", "replace", "push")


@dataclass(frozen=True, slots=True)
class Transition:
    """q, u --a/weight--> r, v: in state q read a ("" reads nothing), pop u, push v, go to r."""

    state: str
    read: str
    pop: Stack
    target: str
    push: Stack
    weight: float = 1.0

    def __str__(self) -> str:
        weight = "" if self.weight == 1 else f"/{self.weight:g}"
        return (
            f"{self.state}, {show_stack(self.pop)} --{self.read or 'ε'}{weight}--> "
            f"{self.target}, {show_stack(self.push)}"
        )

    @property
    def action(self) -> str:
        """`push`, `replace` or `pop`; `other` if the transition has none of these restricted forms."""
        size = len(self.push)
        if len(self.pop) != 1 or size > 2 or (size == 2 and self.push[0] != self.pop[0]):
            return "other"
        return _ACTIONS[size]


def show_stack(stack: Stack, spaced: bool = False) -> str:
    """Return the symbols in a row, with spaces if wanted or if one is longer than a character; ε if empty."""
    return (" " if spaced or any(len(s) > 1 for s in stack) else "").join(stack) or "ε"


@dataclass(frozen=True)
class PDA:
    """A pushdown automaton (Q, Σ, Γ, δ, q₀, F); Q, Σ and Γ are what occurs in the transitions, q₀ and F."""

    transitions: tuple[Transition, ...]
    start: str
    accept: frozenset[str]
    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.accept, str):
            raise AutomatonError(f"accept is {self.accept!r}; expected a set of states, as in {{'q1'}}")
        object.__setattr__(self, "accept", frozenset(self.accept))
        for transition in self.transitions:
            self._check(transition)
        object.__setattr__(self, "transitions", tuple(self._merge(self.transitions)))

    def _repr_html_(self) -> str:
        shown = (
            (t.state, show_stack(t.pop), t.read or "ε", t.target, show_stack(t.push), t.weight)
            for t in self.transitions
        )
        head = ("state", "pop", "read", "to", "push", "weight")
        size = 6 if self.weighted else 5
        accept = ", ".join(sorted(self.accept))
        caption = f"{type(self).__name__} from {self.start}, accept states: {accept or 'none'}"
        return table([row[:size] for row in shown], head[:size], caption)

    @cached_property
    def states(self) -> tuple[str, ...]:
        """Q, the start state first, then in order of appearance."""
        ends = (q for t in self.transitions for q in (t.state, t.target))
        return tuple(dict.fromkeys([self.start, *ends, *sorted(self.accept)]))

    @cached_property
    def input_alphabet(self) -> tuple[str, ...]:
        """Σ in order of appearance."""
        return tuple(dict.fromkeys(t.read for t in self.transitions if t.read))

    @cached_property
    def stack_alphabet(self) -> tuple[str, ...]:
        """Γ, with the bottom symbol first if there is one, then in order of appearance."""
        used = (x for t in self.transitions for x in (*t.pop, *t.push))
        return tuple(dict.fromkeys([*self.initial_stack, *used]))

    @property
    def initial_stack(self) -> Stack:
        """The stack of the initial configuration."""
        return ()

    def accepts_in(self, state: str, stack: Stack) -> bool:
        """Return whether a run that ends in this state with this stack accepts."""
        return state in self.accept

    @cached_property
    def _by_state(self) -> dict[str, tuple[Transition, ...]]:
        return {state: tuple(own) for state, own in grouped(self.transitions, lambda t: t.state).items()}

    def from_state(self, state: str) -> tuple[Transition, ...]:
        """Return the transitions that leave a state."""
        return self._by_state.get(state, ())

    def _check(self, transition: Transition) -> None:
        weight = transition.weight
        if math.isnan(weight) or math.isinf(weight) or weight < 0:
            raise AutomatonError(
                f"transition {transition} has weight {weight:g}; weights are finite numbers, 0 or more"
            )
        if not self.weighted and weight != 1:
            raise AutomatonError(
                f"transition {transition} has a weight, but {type(self).__name__} has none; "
                "use the weighted class"
            )
        for part in (transition.pop, transition.push):
            if type(part) is not tuple or "" in part:
                raise AutomatonError(
                    f"transition {transition}: {part!r} is not a tuple of stack symbols; "
                    "write ('x', 'y'), () for the empty string"
                )

    def _merge(self, transitions: Iterable[Transition]) -> Iterator[Transition]:
        merged: dict[tuple[str, str, Stack, str, Stack], Transition] = {}
        for t in transitions:
            if t.weight > 0:
                key = (t.state, t.read, t.pop, t.target, t.push)
                if self.weighted and key in merged:
                    t = replace(t, weight=merged[key].weight + t.weight)
                merged[key] = t
        return iter(merged.values())


@dataclass(frozen=True)
class WeightedPDA(PDA):
    """A PDA in which the weight of a run is the product of the weights of its transitions."""

    weighted: ClassVar[bool] = True


@dataclass(frozen=True)
class BottomMarkedPDA(PDA):
    """A PDA that starts with ⊥ on its stack, and accepts in an accept state with ⊥ on top."""

    bottom: str = BOTTOM

    @property
    def initial_stack(self) -> Stack:
        """⊥ alone."""
        return (self.bottom,)

    def accepts_in(self, state: str, stack: Stack) -> bool:
        """Return whether the state is an accept state and ⊥ is on top."""
        return state in self.accept and stack[-1:] == (self.bottom,)


@dataclass(frozen=True)
class WeightedBottomMarkedPDA(BottomMarkedPDA):
    """A bottom-marked PDA with weights."""

    weighted: ClassVar[bool] = True


@dataclass(frozen=True)
class RestrictedPDA(BottomMarkedPDA):
    """A bottom-marked PDA all of whose transitions read a symbol and push, replace or pop one."""

    def _check(self, transition: Transition) -> None:
        super()._check(transition)
        if not transition.read:
            raise AutomatonError(
                f"transition {transition} reads nothing; a restricted PDA reads one symbol per step"
            )
        if transition.action == "other":
            raise AutomatonError(
                f"transition {transition} is not of the form x → xy (push), x → y (replace) "
                "or x → ε (pop); convert the automaton with to_restricted()"
            )


@dataclass(frozen=True)
class RestrictedWPDA(RestrictedPDA):
    """A restricted PDA with weights (section 4.2)."""

    weighted: ClassVar[bool] = True

    def is_probabilistic(self, tolerance: float = 1e-9) -> bool:
        """Return whether, for every q, a and x, the weights of the transitions from (q, a, x) sum to 1."""
        totals = dict.fromkeys(
            ((q, a, x) for q in self.states for a in self.input_alphabet for x in self.stack_alphabet), 0.0
        )
        for t in self.transitions:
            totals[t.state, t.read, t.pop[0]] += t.weight
        return all(abs(total - 1) <= tolerance for total in totals.values())


def restricted_class(weighted: bool) -> type[RestrictedPDA]:
    """Return `RestrictedWPDA` or `RestrictedPDA`."""
    return RestrictedWPDA if weighted else RestrictedPDA
