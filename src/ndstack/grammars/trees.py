"""Derivations as sequences of rules and as `nltk.Tree`s."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ndstack.grammars.grammar import Nonterminal, Rule

if TYPE_CHECKING:
    from nltk import Tree


def leaves(derivation: Sequence[Rule]) -> tuple[str, ...]:
    """Return the string of a leftmost derivation."""
    found: list[str] = []
    rules = iter(derivation)
    open_: list[Nonterminal | str] = [derivation[0].left]
    while open_:
        symbol = open_.pop()
        if isinstance(symbol, str):
            found.append(symbol)
        else:
            open_.extend(reversed(next(rules).right))
    return tuple(found)


def tree_of_derivation(derivation: Sequence[Rule]) -> "Tree":
    """Return the tree of a leftmost derivation, whose labels are the names of the nonterminals."""
    from nltk import Tree  # imported here because nltk takes long

    rules = iter(derivation)
    root = Tree(derivation[0].left.name, [])
    open_: list[tuple[Tree, list[Nonterminal | str]]] = [(root, list(next(rules).right))]
    while open_:
        node, rest = open_[-1]
        if not rest:
            open_.pop()
            continue
        symbol = rest.pop(0)
        if isinstance(symbol, str):
            node.append(symbol)
        else:
            child = Tree(symbol.name, [])
            node.append(child)
            open_.append((child, list(next(rules).right)))
    return root
