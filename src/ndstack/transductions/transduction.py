"""Functions from strings to strings: a sampler of inputs by length, and the exact output of each input."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ndstack.errors import LanguageError
from ndstack.grammars.grammar import Word
from ndstack.grammars.length_sampling import Random, no_strings

Symbols = tuple[str, ...]


class Pair(NamedTuple):
    """An input string and its output."""

    source: Word
    target: Word


def any_length(length: int) -> bool:
    """Return whether a length is at least 1."""
    return length >= 1


class Transduction:
    """A function from strings to strings.

    Strings are returned as `str` if every symbol of their alphabet is one character, and as tuples of symbols
    otherwise; both forms are accepted.

    Args:
        name: the name of the transduction.
        source: the symbols of inputs.
        target: the symbols of outputs.
        draw: a function that returns a random input of a given length.
        solve: a function that returns the output of an input; it raises a `LanguageError` for a string that
            is no input.
        has_length: a function that returns whether there are inputs of a given length.
        scores_end: whether the end of the output counts in scores, like a symbol; it should if the length of
            the output does not follow from the length of the input.
        generalization: another transduction with the same alphabets, whose inputs tell apart hypotheses that
            agree on the inputs of this one.
    """

    def __init__(
        self,
        name: str,
        source: Sequence[str],
        target: Sequence[str],
        draw: Callable[[int, Random], Symbols],
        solve: Callable[[Symbols], Symbols],
        *,
        has_length: Callable[[int], bool] = any_length,
        scores_end: bool = False,
        generalization: "Transduction | None" = None,
    ) -> None:
        self.name, self.source, self.target = name, tuple(source), tuple(target)
        self.scores_end, self.generalization = scores_end, generalization
        self._draw, self._solve, self._has_length = draw, solve, has_length

    def __repr__(self) -> str:
        return f"<transduction {self.name}>"

    def lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from low to high, both included, that inputs can have."""
        return [length for length in range(max(low, 0), high + 1) if self._has_length(length)]

    def sample(self, length: int, rng: Random) -> Pair:
        """Return an input of exactly this length and its output.

        Args:
            length: the number of symbols of the input.
            rng: a numpy `Generator` or a `random.Random`.
        """
        if length < 0 or not self._has_length(length):
            raise LanguageError(no_strings(self.name, length, self.lengths(length - 20, length + 20)))
        symbols = self._draw(length, rng)
        return Pair(word(symbols, self.source), word(self._solve(symbols), self.target))

    def apply(self, source: Word) -> Word:
        """Return the output of an input."""
        symbols = tuple(source)
        unknown = next((symbol for symbol in symbols if symbol not in self.source), None)
        if unknown is not None:
            raise LanguageError(
                f"{unknown!r} is not a symbol of {self.name}; its inputs consist of {' '.join(self.source)}"
            )
        if not self._has_length(len(symbols)):
            near = self.lengths(len(symbols) - 20, len(symbols) + 20)
            raise LanguageError(no_strings(self.name, len(symbols), near))
        return word(self._solve(symbols), self.target)


def word(symbols: Iterable[str], alphabet: Sequence[str]) -> Word:
    """Return symbols as a `str` if all symbols of the alphabet are single characters, and else as a tuple."""
    return "".join(symbols) if all(len(symbol) == 1 for symbol in alphabet) else tuple(symbols)


def no_input(symbols: Symbols, expected: str) -> LanguageError:
    """Return the error about a string that is no input of a transduction."""
    return LanguageError(f"{' '.join(symbols)!r} is not an input, expected {expected}")


def choose(options: Sequence[str], rng: Random) -> str:
    """Return one of some symbols, all with the same probability."""
    return options[int(rng.random() * len(options))]


def choose_many(options: Sequence[str], count: int, rng: Random) -> Symbols:
    """Return a uniformly random string of this length."""
    return tuple(choose(options, rng) for _ in range(count))
