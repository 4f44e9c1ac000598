"""One run of the differentiable WPDA: its moves, its stacks, its tree (sections 2.3.2 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ndstack.automata import BOTTOM
from ndstack.html_tables import preformatted, table

if TYPE_CHECKING:
    from nltk import Tree

Action = Literal["push", "replace", "pop"]
ACTIONS: tuple[Action, ...] = ("push", "replace", "pop")


@dataclass(frozen=True)
class Names:
    """The symbols that are read, and the names of states and stack symbols.

    Attributes:
        inputs: the symbol read at each of n steps.
        states: the names of the states, the start state first.
        symbols: the names of the stack symbols, the bottom symbol first.
    """

    inputs: tuple[str, ...]
    states: tuple[str, ...]
    symbols: tuple[str, ...]

    @classmethod
    def numbered(cls, inputs: Sequence[str], states: int, symbols: int) -> Names:
        """Return the names q0, q1, ... for states and ⊥, 1, 2, ... for stack symbols."""
        return cls(
            tuple(inputs),
            tuple(f"q{number}" for number in range(states)),
            (BOTTOM, *(str(number) for number in range(1, symbols))),
        )

    def type(self, state: int, symbol: int) -> str:
        """Return the name `q, x` of a configuration type."""
        return f"{self.states[state]}, {self.symbols[symbol]}"

    def types(self) -> tuple[str, ...]:
        """Return the names of all configuration types, in the order of readings."""
        pairs = ((q, x) for q in range(len(self.states)) for x in range(len(self.symbols)))
        return tuple(self.type(q, x) for q, x in pairs)


@dataclass(frozen=True)
class Move:
    """One transition taken at a step.

    Attributes:
        time: the step, from 1.
        action: push, replace or pop.
        state, symbol: the state and the top symbol before the step.
        target: the state after the step.
        pushed: the symbol that is pushed, or that replaces the top symbol; None for a pop.
        log_weight: the log weight of the transition at this step.
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
    """A symbol on a stack, and the step at which its place was pushed, which is 0 for the initial bottom."""

    symbol: int
    pushed: int


@dataclass(frozen=True)
class StackConfiguration:
    """A state and a stack, bottom first, after some number of steps."""

    time: int
    state: int
    stack: tuple[Element, ...]

    def symbols(self) -> tuple[int, ...]:
        """Return the stack's symbols, bottom first."""
        return tuple(element.symbol for element in self.stack)


@dataclass(frozen=True)
class StackRun:
    """One run of the differentiable WPDA.

    Attributes:
        moves: one move for each step.
        names: the names of what the moves refer to by number.
        log_weight: the sum of the log weights of the moves.
        log_probability: the log probability of this run among the runs from which it was chosen.
    """

    moves: tuple[Move, ...]
    names: Names
    log_weight: float
    log_probability: float

    def _repr_html_(self) -> str:
        stacks, names = self.stacks(), self.names
        rows: list[tuple[int | str, ...]] = [(0, "", "", names.states[0], " ".join(stacks[0]))]
        rows += [
            (move.time, names.inputs[move.time - 1], move.action, names.states[move.target], " ".join(stack))
            for move, stack in zip(self.moves, stacks[1:], strict=True)
        ]
        head = ("time", "read", "action", "state", "stack, top last")
        tree = preformatted(self.tree().pformat(margin=100, indent=2))
        return table(rows, head, f"run of probability {self.probability:.5g}") + tree

    @property
    def probability(self) -> float:
        """The probability of this run among the runs from which it was chosen."""
        return math.exp(self.log_probability)

    @cached_property
    def configurations(self) -> tuple[StackConfiguration, ...]:
        """The configurations before the first step and after each step."""
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
        """Return the symbols of the stack by name, bottom first, before the first step and after each."""
        names = self.names.symbols
        return [tuple(names[x] for x in configuration.symbols()) for configuration in self.configurations]

    def arcs(self) -> list[tuple[int, int]]:
        """Return the steps (push, pop) at which each place is pushed and popped."""
        before = self.configurations
        return [
            (before[move.time - 1].stack[-1].pushed, move.time)
            for move in self.moves
            if move.action == "pop" and before[move.time - 1].stack[-1].pushed
        ]

    def tree(self, types: bool = False) -> Tree:
        """Return the run as a tree whose leaves are the symbols read.

        A node is a place on the stack. Its children are, in order of time, the symbol read when it was
        pushed, the symbols read when it was replaced, the places pushed onto it, and the symbol read when it
        was popped. Its label is its stack symbol, or several, as in `1→2`, if it was replaced. The root is
        the initial bottom.

        Args:
            types: whether each symbol read has the configuration type `q, x` after its step as its parent.
            Then
                no two runs have the same tree.
        """
        from nltk import Tree

        names = self.names
        root = Tree(names.symbols[0], [])
        open_ = [root]
        for move, after in zip(self.moves, self.configurations[1:], strict=True):
            leaf: str | Tree = names.inputs[move.time - 1]
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

    def to_json(self) -> dict[str, object]:
        """Return the run, with all names, for `json.dumps`."""
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
