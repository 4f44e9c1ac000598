"""Which symbols may follow each prefix of a string: Earley's algorithm (1970), without weights.

Since every variable of a `CFG` is reachable and derives some string, an item A → α · β that begins at j
is in column i of the chart if and only if some string of the language begins with the first i symbols and has
a derivation in which α derives the symbols from j to i, and β the next ones. So the terminals right after a
dot in column i are those that may follow the first i symbols, and the end may follow if the start variable is
complete.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.grammar import CFG, Nonterminal, Rule

Item = tuple[int, int]
"""The number of a dotted rule, and the column where it begins."""


class NextSymbolSets:
    """The sets of next symbols of a grammar.

    Args:
        grammar: any grammar; its weights do not matter.
    """

    def __init__(self, grammar: CFG) -> None:
        self.alphabet = grammar.terminals
        rules, self._start = grammar.rules, grammar.start
        self._after: list[Nonterminal | str | None] = []
        """The symbol after the dot of each dotted rule; None at the end. The next number moves the dot."""
        self._left: list[Nonterminal] = []
        self._first: dict[Nonterminal, list[int]] = {rule.left: [] for rule in rules}
        for rule in rules:
            self._first[rule.left].append(len(self._after))
            self._after += [*rule.right, None]
            self._left += [rule.left] * (len(rule.right) + 1)
        self._nullable = _nullable(rules)

    def __call__(self, word: Sequence[str]) -> NDArray[np.bool_]:
        """Return which symbols may follow each prefix, [n + 1, V + 1]; the last column is the end."""
        place = {symbol: i for i, symbol in enumerate(self.alphabet)}
        found = np.zeros((len(word) + 1, len(self.alphabet) + 1), dtype=np.bool_)
        waiting: list[dict[Nonterminal, list[Item]]] = []
        items: list[Item] = [(state, 0) for state in self._first.get(self._start, ())]
        for i in range(len(word) + 1):
            ends, moved = self._column(items, waiting, i)
            found[i, [place[symbol] for symbol in moved]] = True
            found[i, -1] = ends
            items = moved.get(word[i], []) if i < len(word) else []
        return found

    def _column(
        self, items: list[Item], waiting: list[dict[Nonterminal, list[Item]]], i: int
    ) -> tuple[bool, dict[str, list[Item]]]:
        """Complete column i; return whether the string may end, and the items after each next terminal."""
        here: dict[Nonterminal, list[Item]] = {}
        moved: dict[str, list[Item]] = {}
        waiting.append(here)
        agenda, seen, ends = list(items), set(items), i == 0 and self._start in self._nullable

        def add(item: Item) -> None:
            if item not in seen:
                seen.add(item)
                agenda.append(item)

        while agenda:
            state, begin = agenda.pop()
            symbol = self._after[state]
            if symbol is None:
                left = self._left[state]
                ends = ends or (begin == 0 and left == self._start)
                for other, origin in waiting[begin].get(left, ()):
                    add((other + 1, origin))
            elif isinstance(symbol, str):
                moved.setdefault(symbol, []).append((state + 1, begin))
            else:
                if symbol not in here:
                    here[symbol] = []
                    for first in self._first[symbol]:
                        add((first, i))
                here[symbol].append((state, begin))
                if symbol in self._nullable:  # its empty derivations may have been completed before
                    add((state + 1, begin))
        return ends, moved


def _nullable(rules: Sequence[Rule]) -> frozenset[Nonterminal]:
    """Return the variables that derive the empty string."""
    found: set[Nonterminal] = set()
    while True:
        new = {rule.left for rule in rules if all(symbol in found for symbol in rule.right)} - found
        if not new:
            return frozenset(found)
        found |= new
