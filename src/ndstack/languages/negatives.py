"""Strings inside and outside of a language, exactly labelled, for recognizers.

A string outside of the language is either uniformly random, of the same length as a string of the language,
or made from the latter by a few random edits. Whether it is outside is decided by the language's own
membership test; strings that are inside are drawn again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ndstack.errors import LanguageError
from ndstack.grammars.grammar import Word
from ndstack.grammars.length_sampling import Random
from ndstack.languages.language import Language
from ndstack.settings.data import RecognitionConfig

MOST_TRIES = 10_000
"""After this number of strings that are all inside of a language, it is assumed to have no other strings."""


@dataclass(frozen=True)
class Example:
    """A string, and whether it is in the language."""

    word: Word
    inside: bool
    edits: int | None
    """The number of edits by which it was made from a string of the language; None for uniform strings."""


def make_examples(
    language: Language, words: Sequence[Word], config: RecognitionConfig, rng: Random
) -> tuple[Example, ...]:
    """Return strings of a language, some of them replaced by strings outside of it.

    Args:
        language: the language.
        words: strings of the language.
        config: how many strings are replaced, and how.
        rng: a numpy `Generator` or a `random.Random`.
    """
    return tuple(
        Example(word, True, 0) if rng.random() >= config.negatives else _negative(language, word, config, rng)
        for word in words
    )


def _negative(language: Language, word: Word, config: RecognitionConfig, rng: Random) -> Example:
    edited = rng.random() < config.edited
    for _ in range(MOST_TRIES):
        edits = 1 + int(rng.random() * config.most_edits) if edited else None
        symbols = (
            edit(word, edits, language.alphabet, rng)
            if edits is not None
            else tuple(_choose(language.alphabet, rng) for _ in word)
        )
        if symbols not in language:
            return Example(language.word(symbols), False, edits)
        edited = edited or not len(word)  # the empty string is the only one of its length
    raise LanguageError(
        f"{MOST_TRIES:,} random strings are all in {language.name}, so there is nothing to tell apart"
    )


def edit(word: Word, count: int, alphabet: Sequence[str], rng: Random) -> tuple[str, ...]:
    """Return a string after this number of random edits.

    Each edit inserts a symbol, deletes one or replaces one by another, all with the same probability as far
    as they are possible.
    """
    symbols = list(word)
    for _ in range(count):
        kinds = ["insert"] + ["delete"] * bool(symbols) + ["replace"] * (bool(symbols) and len(alphabet) > 1)
        kind = _choose(kinds, rng)
        place = int(rng.random() * (len(symbols) + (kind == "insert")))
        if kind == "insert":
            symbols.insert(place, _choose(alphabet, rng))
        elif kind == "delete":
            del symbols[place]
        else:
            symbols[place] = _choose([one for one in alphabet if one != symbols[place]], rng)
    return tuple(symbols)


def _choose(options: Sequence[str], rng: Random) -> str:
    return options[int(rng.random() * len(options))]
