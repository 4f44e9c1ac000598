"""Linked lists, with which the partial derivations of a search share what they have in common."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Linked = tuple[T, "Linked[T]"] | None
"""None, or the first element and the rest."""


def prepend(items: Sequence[T], rest: Linked[T]) -> Linked[T]:
    """Return a list with these items, in their order, before the rest."""
    for item in reversed(items):
        rest = (item, rest)
    return rest


def elements(linked: Linked[T]) -> Iterator[T]:
    """Yield the elements of a list from first to last."""
    while linked is not None:
        item, linked = linked
        yield item
