"""Sets of next symbols against all strings, and against membership."""

from itertools import product

import numpy as np
import pytest

from ndstack import languages
from ndstack.errors import LanguageError
from ndstack.grammars import PCFG
from tests.training import own_parts

GRAMMARS = {
    "empty and unary rules": "S -> A B [0.4] | A [0.3] | [0.3]\nA -> 'a' A [0.3] | B [0.3] | [0.4]\n"
    "B -> 'b' S 'a' [0.4] | 'b' [0.6]",
    "many empty rules": "S -> A A A S 'a' [0.5] | A [0.5]\nA -> [0.5] | 'b' A [0.5]",
    "one string": "S -> 'a' 'b' [1.0]",
}
LONG = ("count-3", "marked-reverse-and-copy", "count-and-copy", "unmarked-reverse-and-copy")


@pytest.mark.parametrize("name", [*(n for n in languages.NAMES if n != "hardest-cfl"), *GRAMMARS])
def test_sets_of_all_short_strings(name):
    if name in GRAMMARS:
        language = languages.from_grammar(PCFG.fromstring(GRAMMARS[name]))
    else:
        language = languages.get(name)
    short, longest = (1, 8) if name in LONG else (2, 7)  # every live prefix has a string of this length
    strings = [
        w for n in language.lengths(0, longest) for w in product(language.alphabet, repeat=n) if w in language
    ]
    for word in (w for n in range(short + 1) for w in product(language.alphabet, repeat=n)):
        got = language.next_symbol_sets(word)
        for t in range(len(word) + 1):
            beginning = [w for w in strings if w[:t] == word[:t]]
            expected = {w[t] if t < len(w) else "EOS" for w in beginning}
            assert {a for a, may in zip([*language.alphabet, "EOS"], got[t], strict=True) if may} == expected


@pytest.mark.parametrize("name", languages.NAMES)
def test_long_strings_may_be_read_and_end(name):
    language, rng = languages.get(name), np.random.default_rng(0)
    word = language.sample(language.lengths(20, 40)[-1], rng)
    sets = language.next_symbol_sets(word)
    assert all(row[language.alphabet.index(a)] for row, a in zip(sets, word, strict=False))
    assert [bool(row[-1]) for row in sets] == [word[:t] in language for t in range(len(word) + 1)]


def test_a_prefix_of_no_string_is_followed_by_nothing():
    sets = languages.get("dyck").next_symbol_sets("(]x")
    assert sets[1].any()
    assert not sets[2:].any()


def test_languages_that_do_not_say():
    with pytest.raises(LanguageError, match="coins does not say which symbols may follow"):
        own_parts.coins().next_symbol_sets("ab")
