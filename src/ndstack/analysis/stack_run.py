"""One run of the differentiable WPDA: its moves, its stacks, its tree (sections 2.3.2 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ndstack.automata import BOTTOM

if TYPE_CHECKING:
    from nltk import Tree

Action = Literal["push", "replace", "pop"]
ACTIONS: tuple[Action, ...] = ("push", "replace", "pop")


@dataclass(frozen=True)
class Names:
    """What is read at each step, and what states and stack symbols are called.

    Attributes:
        inputs: the symbol read at each of n steps.
        states: of each state; the start state is the first.
        symbols: of each stack symbol; the bottom symbol is the first.
    """

    inputs: tuple[str, ...]
    states: tuple[str, ...]
    symbols: tuple[str, ...]

    @classmethod
    def numbered(cls, inputs: Sequence[str], states: int, symbols: int) -> Names:
        """q0, q1, ... and ⊥, 1, 2, ..."""
        return cls(
            tuple(inputs),
            tuple(f"q{number}" for number in range(states)),
            (BOTTOM, *(str(number) for number in range(1, symbols))),
        )

    def type(self, state: int, symbol: int) -> str:
        """A configuration type, `q, x`."""
        return f"{self.states[state]}, {self.symbols[symbol]}"

    def types(self) -> tuple[str, ...]:
        """All configuration types in the order of readings."""
        pairs = ((q, x) for q in range(len(self.states)) for x in range(len(self.symbols)))
        return tuple(self.type(q, x) for q, x in pairs)


@dataclass(frozen=True)
class Move:
    """One transition taken at a step.

    Attributes:
        time: the step, from 1.
        action: push, replace or pop.
        state, symbol: before it, the state and the symbol on top.
        target: the state after it.
        pushed: the symbol pushed or put in the place of the top; None for a pop.
        log_weight: of the transition at this step.
    """

    time: int
    action: Action
    state: int
    symbol: int
    target: int
    pushed: int | None
    log_weight: float


@dataclass(frozen=True)
class Element:
    """A symbol on a stack, and the step at which its place was pushed; 0 for the initial bottom."""

    symbol: int
    pushed: int


@dataclass(frozen=True)
class StackConfiguration:
    """A state and a stack, bottom first, after some number of steps."""

    time: int
    state: int
    stack: tuple[Element, ...]

    def symbols(self) -> tuple[int, ...]:
        """The stack's symbols, bottom first."""
        return tuple(element.symbol for element in self.stack)


@dataclass(frozen=True)
class StackRun:
    """One run: a transition for each step.

    Attributes:
        moves: one for each step.
        names: of what the moves refer to by number.
        log_weight: the sum of the moves' log weights.
        log_probability: of this run among all those it was chosen from.
    """

    moves: tuple[Move, ...]
    names: Names
    log_weight: float
    log_probability: float

    @property
    def probability(self) -> float:
        """Of this run among all those it was chosen from."""
        return math.exp(self.log_probability)

    @cached_property
    def configurations(self) -> tuple[StackConfiguration, ...]:
        """Before the first step and after each."""
        stack: tuple[Element, ...] = (Element(0, 0),)
        found = [StackConfiguration(0, 0, stack)]
        for move in self.moves:
            if move.action == "push":
                assert move.pushed is not None
                stack = (*stack, Element(move.pushed, move.time))
            elif move.action == "replace":
                assert move.pushed is not None
                stack = (*stack[:-1], Element(move.pushed, stack[-1].pushed))
            else:
                stack = stack[:-1]
            found.append(StackConfiguration(move.time, move.target, stack))
        return tuple(found)

    def stacks(self) -> list[tuple[str, ...]]:
        """The names on the stack, bottom first, before the first step and after each."""
        names = self.names.symbols
        return [tuple(names[x] for x in configuration.symbols()) for configuration in self.configurations]

    def arcs(self) -> list[tuple[int, int]]:
        """Steps that belong together: (push, pop) of each place that is pushed and popped."""
        before = self.configurations
        return [
            (before[move.time - 1].stack[-1].pushed, move.time)
            for move in self.moves
            if move.action == "pop" and before[move.time - 1].stack[-1].pushed
        ]

    def tree(self, types: bool = False) -> Tree:
        """The run as a tree whose leaves are the symbols read.

        A node is a place on the stack. Its children are, in order of time, the symbol read when it was
        pushed, those read when it was replaced, whatever was pushed on it, and the symbol read when it was
        popped. Its label is the symbol it had, or several, as in `1→2`, if it was replaced. The root is
        the initial bottom.

        Args:
            types: put the configuration type `q, x` after each step over the symbol read at it. Then two runs
                never have the same tree.
        """
        from nltk import Tree

        names = self.names
        root = Tree(names.symbols[0], [])
        open_ = [root]
        for move, after in zip(self.moves, self.configurations[1:], strict=True):
            leaf: Any = names.inputs[move.time - 1]
            if types:
                leaf = Tree(names.type(after.state, after.stack[-1].symbol), [leaf])
            if move.action == "push":
                node = Tree(names.symbols[after.stack[-1].symbol], [leaf])
                open_[-1].append(node)
                open_.append(node)
                continue
            open_[-1].append(leaf)
            if move.action == "replace":
                node, name = open_[-1], names.symbols[after.stack[-1].symbol]
                if node.label().split("→")[-1] != name:
                    node.set_label(f"{node.label()}→{name}")
            else:
                open_.pop()
        return root

    def to_json(self) -> dict[str, Any]:
        """Everything by name, for `json.dumps`."""
        names = self.names
        steps = [
            {
                "time": move.time,
                "read": names.inputs[move.time - 1],
                "action": move.action,
                "from": [names.states[move.state], names.symbols[move.symbol]],
                "to": names.states[move.target],
                "pushed": None if move.pushed is None else names.symbols[move.pushed],
                "log_weight": move.log_weight,
                "stack": list(stack),
            }
            for move, stack in zip(self.moves, self.stacks()[1:], strict=True)
        ]
        return {"log_weight": self.log_weight, "log_probability": self.log_probability, "steps": steps}
