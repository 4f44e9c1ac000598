"""The stack WFA: a finite automaton whose paths are the stacks of a PDA (sections 4.4 and 4.5)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import graphviz

from ndstack.semirings import Semiring

T = TypeVar("T")


class Node(NamedTuple):
    """A configuration type (i, q, x): after i symbols in state q with x on top of the stack."""

    time: int
    state: str
    symbol: str


ROOT = Node(-1, "", "")
"""The start state of every stack WFA, under the first symbol."""


class Edge(NamedTuple, Generic[T]):
    """A symbol of a stack: from the type it stands on to the type it is the top of."""

    source: Node
    symbol: str
    target: Node
    weight: T


@dataclass(frozen=True)
class StackWFA(Generic[T]):
    """States, edges, and as accept states the configuration types of one time."""

    semiring: Semiring[T]
    states: tuple[Node, ...]
    edges: tuple[Edge[T], ...]
    accept: frozenset[Node]
    time: int

    def trimmed(self) -> "StackWFA[T]":
        """Only what lies on a path to an accept state, that is, in some stack of this time."""
        into: dict[Node, list[Node]] = {}
        for edge in self.edges:
            into.setdefault(edge.target, []).append(edge.source)
        alive, open_ = set(self.accept), list(self.accept)
        while open_:
            for source in into.get(open_.pop(), ()):
                if source not in alive:
                    alive.add(source)
                    open_.append(source)
        return StackWFA(
            self.semiring,
            tuple(s for s in self.states if s in alive),
            tuple(e for e in self.edges if e.target in alive),
            self.accept,
            self.time,
        )

    def paths(self) -> Iterator[tuple[tuple[Edge[T], ...], T]]:
        """All paths from the root to an accept state, with their weights."""
        out: dict[Node, list[Edge[T]]] = {}
        for edge in self.trimmed().edges:
            out.setdefault(edge.source, []).append(edge)
        open_: list[tuple[tuple[Edge[T], ...], T]] = [((), self.semiring.one)]
        while open_:
            path, weight = open_.pop()
            end = path[-1].target if path else ROOT
            if end in self.accept:
                yield path, weight
            open_ += [((*path, edge), self.semiring.times(weight, edge.weight)) for edge in out.get(end, ())]

    def stacks(self) -> dict[tuple[str, tuple[str, ...]], T]:
        """(state, stack bottom to top) -> the total weight of the runs that end so."""
        found: dict[tuple[str, tuple[str, ...]], T] = {}
        for path, weight in self.paths():
            key = path[-1].target.state, tuple(edge.symbol for edge in path)
            found[key] = self.semiring.plus(found.get(key, self.semiring.zero), weight)
        return found

    def label(self, state: Node) -> str:
        """`i, q, x`, as in the dissertation's figures; nothing for the root."""
        return "" if state == ROOT else f"{state.time}, {state.state}, {state.symbol}"

    def to_graphviz(self, *, weights: bool = False) -> graphviz.Digraph:
        """A drawing for Graphviz: `.source` is its text; rendering needs the `dot` program."""
        graph = graphviz.Digraph(
            graph_attr={"rankdir": "LR"},
            node_attr={"shape": "box", "style": "rounded", "fontname": "Helvetica"},
            edge_attr={"fontname": "Helvetica"},
        )
        names = {state: f"n{i}" for i, state in enumerate(self.states)}
        for state, name in names.items():
            graph.node(name, self.label(state), peripheries="2" if state in self.accept else "1")
        for edge in self.edges:
            label = f"{edge.symbol} / {edge.weight}" if weights else edge.symbol
            style = "dashed" if edge.target.time == self.time else "solid"
            graph.edge(names[edge.source], names[edge.target], label, style=style)
        return graph
