"""Vocabularies: one index for each known word, `<unk>` for all other words, `<eos>` for the end of a line.

Words are ordered by frequency, the most frequent first, and alphabetically if they are equally frequent.
`<eos>` has the index after the last word, which is the string boundary of `ndstack.nn.LanguageModel`; the
other words are the alphabet of that model.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ndstack import files
from ndstack.errors import DatasetError

UNKNOWN = "<unk>"
END = "<eos>"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows.

    Attributes:
        words: all words except `<eos>`; `<unk>` is one of them.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if UNKNOWN not in self.words or END in self.words or len(set(self.words)) < len(self.words):
            raise DatasetError(f"a vocabulary has distinct words, {UNKNOWN} among them and {END} not")

    def __len__(self) -> int:
        """Return the number of types, `<eos>` included."""
        return len(self.words) + 1

    @functools.cached_property
    def indices(self) -> dict[str, int]:
        """The index of each word, and of `<eos>`."""
        return {word: index for index, word in enumerate((*self.words, END))}

    @property
    def unknown(self) -> int:
        """The index of `<unk>`."""
        return self.indices[UNKNOWN]

    @property
    def end(self) -> int:
        """The index of `<eos>`, the greatest."""
        return len(self.words)

    def index(self, word: str) -> int:
        """Return the index of a word as written, or else in lower case, or else that of `<unk>`."""
        found = self.indices.get(word)
        if found is None:
            found = self.indices.get(word.lower(), self.unknown)
        return found

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the indices of some words."""
        return [self.index(word) for word in words]

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Return the words of some indices."""
        known = (*self.words, END)
        return [known[index] for index in indices]

    def unknown_words(self, words: Iterable[str]) -> list[str]:
        """Return the words that become `<unk>`, except `<unk>` itself."""
        return [word for word in words if word != UNKNOWN and self.index(word) == self.unknown]


def from_counts(counts: Counter[str], size: int | None = None, min_count: int = 1) -> Vocabulary:
    """Return the vocabulary of a text.

    Args:
        counts: the number of occurrences of each word.
        size: the largest number of types, including `<unk>` and `<eos>`; None for no limit.
        min_count: the smallest number of occurrences with which a word is kept.
    """
    if size is not None and size < 2:
        raise DatasetError(f"a vocabulary of size {size} asked for, expected 2 ({UNKNOWN} and {END}) or more")
    if min_count < 1:
        raise DatasetError(f"min_count is {min_count}, expected 1 or more")
    ranked = sorted(
        (word for word, count in counts.items() if word == UNKNOWN or count >= min_count),
        key=lambda word: (-counts[word], word),
    )
    if UNKNOWN not in counts:
        ranked.append(UNKNOWN)
    if size is not None and len(ranked) > size - 1:
        kept = {UNKNOWN, *[word for word in ranked if word != UNKNOWN][: size - 2]}
        ranked = [word for word in ranked if word in kept]
    return Vocabulary(tuple(ranked))


def read_vocabulary(path: Path) -> Vocabulary:
    """Return the vocabulary in a file with one word per line; `<unk>` is added, and `<eos>` is ignored."""
    lines = files.read_text(path, DatasetError).split("\n")
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        word = line.strip()
        if not word or word == END:
            continue
        if len(word.split()) > 1:
            raise DatasetError(f"{path}, line {number}: {word!r} given, expected one word per line")
        if word in first:
            raise DatasetError(f"{path}, line {number}: {word!r} is already in line {first[word]}")
        first[word] = number
    if not first.keys() - {UNKNOWN}:
        raise DatasetError(f"{path} has no words; expected one per line")
    return Vocabulary((*first, *(() if UNKNOWN in first else (UNKNOWN,))))
