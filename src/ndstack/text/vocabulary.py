"""The words that a model knows: one index each, `<unk>` for all others, `<eos>` at the end of a line.

Words are ordered by how often they occur, the commonest first; words that are equally common, by their
letters. `<eos>` has the index after the last word, which is the string boundary of
`ndstack.nn.LanguageModel`: the words, without it, are that model's alphabet.
"""

from __future__ import annotations

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
        words: all but `<eos>`, among them `<unk>`.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if UNKNOWN not in self.words or END in self.words or len(set(self.words)) < len(self.words):
            raise DatasetError(f"a vocabulary has distinct words, {UNKNOWN} among them and {END} not")

    def __len__(self) -> int:
        """The number of types, `<eos>` included."""
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
        """The index of a word: as it stands if it is known so, else in lower case, else that of `<unk>`."""
        found = self.indices.get(word)
        if found is None:
            found = self.indices.get(word.lower(), self.unknown)
        return found

    def encode(self, words: Iterable[str]) -> list[int]:
        """The indices of some words."""
        return [self.index(word) for word in words]

    def decode(self, indices: Iterable[int]) -> list[str]:
        """The words of some indices."""
        known = (*self.words, END)
        return [known[index] for index in indices]

    def unknown_words(self, words: Iterable[str]) -> list[str]:
        """Those of some words that become `<unk>` though they are not written so."""
        return [word for word in words if word != UNKNOWN and self.index(word) == self.unknown]


def from_counts(counts: Counter[str], size: int | None = None, min_count: int = 1) -> Vocabulary:
    """The vocabulary of a text.

    Args:
        counts: how often each word occurs.
        size: keep so many types at most, `<unk>` and `<eos>` included; None for no limit.
        min_count: leave out words that occur less often.
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
    """A vocabulary from a file of one word a line; `<unk>` is added if it is not there, `<eos>` left out."""
    lines = files.read_text(path, DatasetError).split("\n")
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        word = line.strip()
        if not word or word == END:
            continue
        if len(word.split()) > 1:
            raise DatasetError(f"{path}, line {number}: {word!r} given, expected one word a line")
        if word in first:
            raise DatasetError(f"{path}, line {number}: {word!r} is in line {first[word]} already")
        first[word] = number
    if not first.keys() - {UNKNOWN}:
        raise DatasetError(f"{path} has no words; expected one a line")
    return Vocabulary((*first, *(() if UNKNOWN in first else (UNKNOWN,))))
