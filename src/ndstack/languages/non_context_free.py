"""The seven non-context-free languages of section 8.4.1.

Each string consists of a free part w over k symbols and of symbols that are determined by w. Therefore
|L_ℓ| = k^|w|, and a string of length ℓ has probability 1 / |L_ℓ|.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.length_sampling import Random
from ndstack.languages.context_free import digits
from ndstack.languages.language import Language

Symbols = tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """The rule by which a string is made from its free part w; its length is parts · |w| + marks."""

    parts: int
    marks: int
    unfold: Callable[[Symbols], Symbols]


class PatternLanguage(Language):
    """The language { unfold(w) | w over the free symbols }, with a uniform distribution for each length."""

    def __init__(self, name: str, alphabet: Symbols, free: Symbols, pattern: Pattern) -> None:
        super().__init__(name, alphabet)
        self._free = free
        self._pattern = pattern

    def _has_length(self, length: int) -> bool:
        rest = length - self._pattern.marks
        return rest >= 0 and rest % self._pattern.parts == 0

    def _free_length(self, length: int) -> int:
        return (length - self._pattern.marks) // self._pattern.parts

    def _sample(self, length: int, rng: Random) -> Symbols:
        count = len(self._free)
        free = tuple(self._free[int(rng.random() * count)] for _ in range(self._free_length(length)))
        return self._pattern.unfold(free)

    def _log_probability(self, symbols: Symbols) -> float:
        free = symbols[: self._free_length(len(symbols))]
        if not set(free) <= set(self._free) or self._pattern.unfold(free) != symbols:
            return -math.inf
        return 0.0 - len(free) * math.log(len(self._free))

    def _log_next(self, symbols: Symbols, lengths: Sequence[int]) -> NDArray[np.float64]:
        place = {symbol: i for i, symbol in enumerate(self.alphabet)}
        free = [place[symbol] for symbol in self._free]
        weights = np.full((len(symbols) + 1, len(self.alphabet) + 1), -math.inf)
        for length in lengths:
            size = self._free_length(length)
            chosen = symbols[:size]
            if not set(chosen) <= set(self._free):
                chosen = chosen[: next(i for i, a in enumerate(chosen) if a not in self._free)]
            log = -math.log(len(self._free))
            for t in range(min(len(chosen) + 1, size)):  # the next symbol is free
                weights[t, free] = np.logaddexp(weights[t, free], (t + 1) * log)
            if len(chosen) < size:
                continue
            whole = self._pattern.unfold(chosen)
            for t in range(size, min(len(symbols), length) + 1):  # the next symbol is determined by w
                if symbols[:t] != whole[:t]:
                    break
                column = place[whole[t]] if t < length else len(self.alphabet)
                weights[t, column] = np.logaddexp(weights[t, column], size * log)
        return weights

    def _next_sets(self, symbols: Symbols) -> NDArray[np.bool_]:
        """Try all free parts that a prefix may have.

        A free part that is longer than the prefix by two or more symbols allows nothing that the one which is
        longer by one does not.
        """
        place = {symbol: i for i, symbol in enumerate(self.alphabet)}
        found = np.zeros((len(symbols) + 1, len(self.alphabet) + 1), dtype=np.bool_)
        fixed = next((i for i, symbol in enumerate(symbols) if symbol not in self._free), len(symbols))
        found[: fixed + 1, [place[symbol] for symbol in self._free]] = True
        for size in range(fixed + 1):
            whole = self._pattern.unfold(symbols[:size])
            for t in range(size, min(len(symbols), len(whole)) + 1):
                if t > size and symbols[t - 1] != whole[t - 1]:
                    break
                found[t, place[whole[t]] if t < len(whole) else -1] = True
        return found


def count_3() -> PatternLanguage:
    """Return the language { a^n b^n c^n }."""
    pattern = Pattern(3, 0, lambda w: (*w, *("b" for _ in w), *("c" for _ in w)))
    return PatternLanguage("count-3", ("a", "b", "c"), ("a",), pattern)


MARKED: dict[str, Pattern] = {
    # { w#w^R#w }
    "marked-reverse-and-copy": Pattern(3, 2, lambda w: (*w, "#", *reversed(w), "#", *w)),
    # { w#^n w | n = |w| }
    "count-and-copy": Pattern(3, 0, lambda w: (*w, *("#" for _ in w), *w)),
    # { w#w }
    "marked-copy": Pattern(2, 1, lambda w: (*w, "#", *w)),
}

UNMARKED: dict[str, Pattern] = {
    # { ww^R w }
    "unmarked-reverse-and-copy": Pattern(3, 0, lambda w: (*w, *reversed(w), *w)),
    # { ww }
    "unmarked-copy": Pattern(2, 0, lambda w: (*w, *w)),
}


def copying_language(name: str, k: int) -> PatternLanguage:
    """Return one of the languages that repeat a string over the symbols 0..k-1."""
    free = tuple(digits(k))
    if name in MARKED:
        return PatternLanguage(name, (*free, "#"), free, MARKED[name])
    if name in UNMARKED:
        return PatternLanguage(name, free, free, UNMARKED[name])
    # { ww' | w' = φ(w) }, φ(i) = i + k
    image = {symbol: str(int(symbol) + k) for symbol in free}
    pattern = Pattern(2, 0, lambda w: (*w, *(image[s] for s in w)))
    return PatternLanguage(name, (*free, *image.values()), free, pattern)
