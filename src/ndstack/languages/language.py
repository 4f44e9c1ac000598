"""The interface of all formal languages: strings of a length, their probabilities, the lower bound.

A language is a set of strings with a distribution for each length. A length is non-empty if the language has
strings of that length. For data sets, a length is drawn uniformly from the non-empty lengths of a range, then
a string of that length (section 5.4).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ndstack.errors import LanguageError
from ndstack.grammars.grammar import Word
from ndstack.grammars.length_sampling import Random, no_strings
from ndstack.settings.data import Lengths


class Language(ABC):
    """A formal language with a distribution over its strings of each length.

    Strings are returned as `str` if every symbol of the alphabet is one character, and as tuples of symbols
    otherwise; both forms are accepted.
    """

    def __init__(self, name: str, alphabet: Sequence[str]) -> None:
        self.name = name
        self.alphabet = tuple(alphabet)
        self._joined = all(len(symbol) == 1 for symbol in alphabet)

    def __repr__(self) -> str:
        return f"<language {self.name} over {len(self.alphabet)} symbols>"

    def __contains__(self, word: object) -> bool:
        return isinstance(word, (str, tuple, list)) and self.log_probability(tuple(word)) > -math.inf

    def lengths(self, low: int, high: int) -> list[int]:
        """Return the non-empty lengths from low to high, both included."""
        return [n for n in range(max(low, 0), high + 1) if self._has_length(n)]

    def sample(self, length: int, rng: Random) -> Word:
        """Return a string of exactly this length; `rng` is a numpy `Generator` or a `random.Random`."""
        if length < 0 or not self._has_length(length):
            raise LanguageError(no_strings(self.name, length, self.lengths(length - 20, length + 20)))
        return self.word(self._sample(length, rng))

    def log_probability(self, word: Word) -> float:
        """Return log p(w | |w|) = log p_G(w) - log p_G(|w|), which is -inf outside the language."""
        symbols = tuple(word)
        if not self._has_length(len(symbols)):
            return -math.inf
        return self._log_probability(symbols)

    def lower_bound(self, words: Iterable[Word], *, lengths: Lengths | None, eos: bool = True) -> float:
        """Return the lower bound of the cross-entropy on these strings, in nats per symbol.

        It is the cross-entropy of the true distribution (sections 5.6 and 6.2.1), which no model can improve
        on average:

            H(S, p) = Σ_{w ∈ S} -log p(w) / Σ_{w ∈ S} (|w| + 1)

        Args:
            words: strings of the language.
            lengths: the range from which lengths are drawn uniformly; None if the length is known.
            eos: whether EOS is predicted, too; if not, the + 1 is left out.
        """
        count = 1 if lengths is None else len(self.lengths(*lengths))
        total, symbols = 0.0, 0
        for word in words:
            log_p = self.log_probability(word)
            if log_p == -math.inf:
                raise LanguageError(f"{word!r} is not in the language {self.name}, so it has no lower bound")
            if lengths is not None and not lengths[0] <= len(word) <= lengths[1]:
                raise LanguageError(
                    f"a string of length {len(word)} cannot come from lengths {lengths[0]}..{lengths[1]}"
                )
            total += math.log(count) - log_p
            symbols += len(word) + eos
        if symbols == 0:
            raise LanguageError("the lower bound of no symbols is undefined; give at least one string")
        return total / symbols

    def next_symbols(self, word: Word, lengths: Lengths) -> NDArray[np.float64]:
        """Return the true distribution of the next symbol after each prefix of a string, [n + 1, V + 1].

        The last column is EOS. A length is drawn uniformly from the non-empty lengths of the range, then a
        string of that length. After a prefix that no such string has, all numbers are 0.
        """
        symbols, choices = tuple(word), self.lengths(*lengths)
        found = np.zeros((len(symbols) + 1, len(self.alphabet) + 1))
        known = next((i for i, a in enumerate(symbols) if a not in self.alphabet), len(symbols))
        if choices:
            logs = self._log_next(symbols[:known], choices)
            top = logs.max(axis=1, keepdims=True)
            weights = np.exp(logs - np.where(top > -math.inf, top, 0.0))
            found[: known + 1] = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        return found

    def next_symbol_sets(self, word: Word) -> NDArray[np.bool_]:
        """Return which symbols may follow each prefix of a string, [n + 1, V + 1]; the last column is EOS.

        A symbol may follow if some string of the language, of any length, begins with the prefix and the
        symbol; EOS may follow if the prefix itself is in the language.
        """
        symbols = tuple(word)
        known = next((i for i, a in enumerate(symbols) if a not in self.alphabet), len(symbols))
        found = np.zeros((len(symbols) + 1, len(self.alphabet) + 1), dtype=np.bool_)
        found[: known + 1] = self._next_sets(symbols[:known])
        return found

    def word(self, symbols: Iterable[str]) -> Word:
        """Return symbols as a string of this language: a `str` if all its symbols are single characters."""
        return "".join(symbols) if self._joined else tuple(symbols)

    @property
    def separator(self) -> Literal["", " ", "\t"]:
        """What separates symbols when strings are written: nothing, a space or a tab."""
        if self._joined:
            return ""
        return "\t" if any(" " in symbol for symbol in self.alphabet) else " "

    @abstractmethod
    def _has_length(self, length: int) -> bool: ...

    @abstractmethod
    def _sample(self, length: int, rng: Random) -> tuple[str, ...]:
        """Return a string of a non-empty length."""

    @abstractmethod
    def _log_probability(self, symbols: tuple[str, ...]) -> float:
        """Return the log probability of a string of a non-empty length."""

    @abstractmethod
    def _log_next(self, symbols: tuple[str, ...], lengths: Sequence[int]) -> NDArray[np.float64]:
        """Return the logs of `next_symbols`, up to a factor for each row, given non-empty lengths."""

    def _next_sets(self, symbols: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return `next_symbol_sets` for symbols of the alphabet."""
        raise LanguageError(f"{self.name} does not say which symbols may follow a prefix (`_next_sets`)")
