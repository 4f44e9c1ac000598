"""The stack WFA: a finite automaton whose paths are the stacks of a PDA (sections 4.4 and 4.5)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import graphviz

from ndstack.grammars.graphs import grouped, reachable_from
from ndstack.html_tables import MOST_ROWS, table
from ndstack.semirings import Semiring

T = TypeVar("T")


class Node(NamedTuple):
    """A configuration type (i, q, x): after i symbols, the state is q and the top symbol is x."""

    time: int
    state: str
    symbol: str


ROOT = Node(-1, "", "")
"""The start state of every stack WFA, below the first symbol."""


class Edge(NamedTuple, Generic[T]):
    """A symbol of a stack: from the configuration type below it to the one whose top symbol it is."""

    source: Node
    symbol: str
    target: Node
    weight: T


@dataclass(frozen=True)
class StackWFA(Generic[T]):
    """A weighted finite automaton whose accept states are the configuration types of one time."""

    semiring: Semiring[T]
    states: tuple[Node, ...]
    edges: tuple[Edge[T], ...]
    accept: frozenset[Node]
    time: int

    def _repr_html_(self) -> str:
        from ndstack.automata.stack_wfa_drawing import stack_wfa_svg

        if len(self.edges) > MOST_ROWS:
            rows = ((self.label(e.source), e.symbol, self.label(e.target), str(e.weight)) for e in self.edges)
            return table(rows, ("from", "symbol", "to", "weight"), f"stack WFA at time {self.time}")
        return stack_wfa_svg(self, weights=True)

    def trimmed(self) -> "StackWFA[T]":
        """Return the part that lies on paths to an accept state, and so in some stack of this time."""
        into = grouped(self.edges, lambda edge: edge.target)
        alive = reachable_from(self.accept, lambda node: (edge.source for edge in into.get(node, ())))
        states = tuple(state for state in self.states if state in alive)
        edges = tuple(edge for edge in self.edges if edge.target in alive)
        return replace(self, states=states, edges=edges)

    def paths(self) -> Iterator[tuple[tuple[Edge[T], ...], T]]:
        """Yield all paths from the root to an accept state, with their weights."""
        out = grouped(self.trimmed().edges, lambda edge: edge.source)
        open_: list[tuple[tuple[Edge[T], ...], T]] = [((), self.semiring.one)]
        while open_:
            path, weight = open_.pop()
            end = path[-1].target if path else ROOT
            if end in self.accept:
                yield path, weight
            open_ += [((*path, edge), self.semiring.times(weight, edge.weight)) for edge in out.get(end, ())]

    def stacks(self) -> dict[tuple[str, tuple[str, ...]], T]:
        """Return the total weight of the runs that end in each state with each stack, bottom to top."""
        found: dict[tuple[str, tuple[str, ...]], T] = {}
        for path, weight in self.paths():
            key = path[-1].target.state, tuple(edge.symbol for edge in path)
            found[key] = self.semiring.plus(found.get(key, self.semiring.zero), weight)
        return found

    def label(self, state: Node) -> str:
        """Return the label `i, q, x` of the dissertation's figures; the root has none."""
        return "" if state == ROOT else f"{state.time}, {state.state}, {state.symbol}"

    def to_graphviz(self, *, weights: bool = False) -> graphviz.Digraph:
        """Return a drawing for Graphviz, whose text is `.source`; rendering needs the `dot` program."""
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
