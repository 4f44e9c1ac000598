"""Lang's algorithm for restricted WPDAs over any semiring (section 4.4).

A node (i, q, x) is a configuration type: after i symbols, the state is q and the top symbol is x. The inner
weight of an edge (i, q, x) → (t, r, y) is the total weight of push computations, which are partial runs whose
net effect is to push y onto the x of time i. The root is below the first symbol, so that the initial ⊥ can be
replaced and uncovered again (section 8.2.3).

    push     (t-1, q, x) → (t, r, y) gains p      where p = δ(q, w_t, x, r, xy)
    replace  (i, q, x) → (t, r, y) gains γ₁p      where p = δ(s, w_t, z, r, y), (i, q, x) -γ₁→ (t-1, s, z)
    pop      (i, q, x) → (t, r, y) gains γ₁γ₂p    where p = δ(s, w_t, z, r, ε),
                                                        (i, q, x) -γ₁→ (k, u, y) -γ₂→ (t-1, s, z)
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from ndstack.automata.pda import RestrictedPDA
from ndstack.automata.stack_wfa import ROOT, Edge, Node, StackWFA
from ndstack.errors import AutomatonError
from ndstack.grammars.graphs import grouped
from ndstack.semirings import BOOLEAN, LOG, REAL, Semiring

T = TypeVar("T")


class Lang(Generic[T]):
    """All runs of a restricted (weighted) PDA at once, while it reads a string symbol by symbol."""

    def __init__(self, pda: RestrictedPDA, semiring: Semiring[T], word: Sequence[str] = ()) -> None:
        self.pda = pda
        self.semiring = semiring
        self._by_type = grouped(pda.transitions, lambda t: (t.read, t.state, t.pop[0]))
        first = Node(0, pda.start, pda.bottom)
        self._inner: dict[Node, dict[Node, T]] = {first: {ROOT: semiring.one}}
        self._forward: dict[Node, T] = {ROOT: semiring.one, first: semiring.one}
        self._layers: list[list[Node]] = [[first]]
        for symbol in word:
            self.read(symbol)

    @property
    def time(self) -> int:
        """The number of symbols that have been read."""
        return len(self._layers) - 1

    def read(self, symbol: str) -> None:
        """Read one more symbol."""
        ring = self.semiring
        time = self.time + 1
        new: dict[Node, dict[Node, T]] = {}

        def gain(origin: Node, state: str, top: str, weight: T) -> None:
            origins = new.setdefault(Node(time, state, top), {})
            origins[origin] = ring.plus(origins[origin], weight) if origin in origins else weight

        for node in self._layers[-1]:
            for t in self._by_type.get((symbol, node.state, node.symbol), ()):
                p = ring.lift(t.weight, t)
                if t.action == "push":
                    gain(node, t.target, t.push[1], p)
                    continue
                for origin, inner in self._inner[node].items():
                    weight = ring.times(inner, p)
                    if t.action == "replace":
                        gain(origin, t.target, t.push[0], weight)
                    elif origin != ROOT:
                        for below, under in self._inner[origin].items():
                            gain(below, t.target, origin.symbol, ring.times(under, weight))
        self._inner |= new
        self._layers.append(list(new))
        for node, origins in new.items():
            self._forward[node] = ring.sum(ring.times(self._forward[o], w) for o, w in origins.items())

    def inner(self, origin: Node, node: Node) -> T:
        """Return the inner weight `γ[i → t][q, x → r, y]`; `ROOT` is the origin of the initial ⊥."""
        return self._inner.get(node, {}).get(origin, self.semiring.zero)

    def forward(self, time: int) -> dict[tuple[str, str], T]:
        """Return the forward weights `α[t][r, y]`: the weight of all runs that end in r with y on top."""
        return {(n.state, n.symbol): self._forward[n] for n in self._layer(time)}

    def stringsum(self) -> T:
        """Return the total weight of the accepting runs on the symbols read so far."""
        return self.semiring.sum(
            self._forward[n]
            for n in self._layers[-1]
            if n.state in self.pda.accept and n.symbol == self.pda.bottom
        )

    def stack_wfa(self, time: int | None = None) -> StackWFA[T]:
        """Return the stack WFA after `time` symbols; by default, after all that have been read."""
        time = self.time if time is None else time
        tops = self._layer(time)
        nodes = [n for layer in self._layers[: time + 1] for n in layer]
        edges = [
            Edge(origin, node.symbol, node, weight)
            for node in nodes
            for origin, weight in self._inner[node].items()
        ]
        return StackWFA(self.semiring, (ROOT, *nodes), tuple(edges), frozenset(tops), time)

    def _layer(self, time: int) -> list[Node]:
        if not 0 <= time <= self.time:
            raise AutomatonError(f"time {time} is not in 0..{self.time}, the number of symbols read")
        return self._layers[time]


def accepts(pda: RestrictedPDA, word: Sequence[str]) -> bool:
    """Return whether the automaton accepts a string."""
    return Lang(pda, BOOLEAN, word).stringsum()


def stringsum(pda: RestrictedPDA, word: Sequence[str]) -> float:
    """Return ψ(P, w), the total weight of all accepting runs on a string."""
    return Lang(pda, REAL, word).stringsum()


def log_stringsum(pda: RestrictedPDA, word: Sequence[str]) -> float:
    """Return the log of the stringsum, which may be too small or too large for a float."""
    return Lang(pda, LOG, word).stringsum()
