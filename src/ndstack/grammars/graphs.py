"""Graph algorithms, groupings, and linked lists, which grammars and automata share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K")
V = TypeVar("V")


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Return the values that have the same key in one list, lists and values in their order of appearance."""
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def reachable_from(starts: Iterable[K], successors: Callable[[K], Iterable[K]]) -> dict[K, None]:
    """Return the vertices that can be reached from some others, these included, as an ordered set."""
    found = dict.fromkeys(starts)
    open_ = list(found)
    while open_:
        new = [vertex for vertex in dict.fromkeys(successors(open_.pop())) if vertex not in found]
        found |= dict.fromkeys(new)
        open_ += new
    return found


def strongly_connected_components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the components of the graph v → edges[v], each after all that it points to (Kosaraju)."""
    backward: list[list[int]] = [[] for _ in edges]
    for v, targets in enumerate(edges):
        for target in targets:
            backward[target].append(v)
    order = [v for tree in _depth_first(backward, range(len(edges))) for v in tree]
    return list(_depth_first(edges, reversed(order)))


def _depth_first(edges: Sequence[Sequence[int]], roots: Iterable[int]) -> list[list[int]]:
    """Return vertices in post-order, one list for each root that no earlier root has reached."""
    seen: set[int] = set()
    trees = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        tree, open_ = [], [(root, iter(edges[root]))]
        while open_:
            vertex, targets = open_[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    open_.append((target, iter(edges[target])))
                    break
            else:
                open_.pop()
                tree.append(vertex)
        trees.append(tree)
    return trees


def transitive_closure(matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the reflexive and transitive closure of U > 0: the entries of (I - U)^{-1} that are not 0."""
    closure = (matrix > 0) | np.eye(len(matrix), dtype=bool)
    while True:
        wider = (closure.astype(np.float32) @ closure.astype(np.float32)) > 0
        if np.array_equal(wider, closure):
            return closure
        closure = wider


Linked = tuple[V, "Linked[V]"] | None
"""A linked list: None, or the first element and the rest, which other lists may share."""


def prepend(items: Sequence[V], rest: Linked[V]) -> Linked[V]:
    """Return a list with these items, in their order, before the rest."""
    for item in reversed(items):
        rest = (item, rest)
    return rest


def elements(linked: Linked[V]) -> Iterator[V]:
    """Yield the elements of a list from first to last."""
    while linked is not None:
        item, linked = linked
        yield item
