"""Strings outside of languages are outside, and as far from the language as they say."""

import random

import pytest

from ndstack import languages
from ndstack.errors import LanguageError
from ndstack.languages.negatives import edit, make_examples
from ndstack.settings import RecognitionConfig
from tests.training import own_parts


def distance(a, b):
    """The least number of insertions, deletions and replacements between two strings."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@pytest.mark.parametrize("name", languages.NAMES)
def test_labels_are_those_of_the_language(name):
    language, rng = languages.get(name), random.Random(0)
    words = [language.sample(n, rng) for n in language.lengths(3, 20) for _ in range(6)]
    found = make_examples(language, words, RecognitionConfig(most_edits=2), rng)
    assert len(found) == len(words)
    assert {one.edits for one in found} == {0, 1, 2, None}
    for word, one in zip(words, found, strict=True):
        assert one.inside == (one.word in language)
        assert one.inside == (one.edits == 0)
        if one.inside:
            assert one.word == word
        elif one.edits is None:
            assert len(one.word) == len(word)
        else:
            assert 1 <= distance(word, one.word) <= one.edits


def test_shares():
    language, rng = languages.get("dyck"), random.Random(1)
    words = [language.sample(10, rng)] * 2000
    found = make_examples(language, words, RecognitionConfig(negatives=0.3, edited=0.8), rng)
    outside = [one for one in found if not one.inside]
    assert len(outside) == pytest.approx(600, abs=80)
    assert sum(one.edits is not None for one in outside) == pytest.approx(0.8 * len(outside), abs=60)
    assert all(one.inside for one in make_examples(language, words, RecognitionConfig(negatives=0), rng))


def test_edits_of_all_kinds():
    rng = random.Random(2)
    made = {edit("aa", 1, "ab", rng) for _ in range(300)}
    assert made == {tuple(word) for word in ("a", "ab", "ba", "aaa", "aab", "aba", "baa")}
    assert {edit("", 1, "a", rng) for _ in range(20)} == {("a",)}
    assert {edit("a", 1, "a", rng) for _ in range(50)} == {(), ("a", "a")}


def test_the_empty_string_is_edited():
    language = languages.from_grammar("S -> 'a' S 'b' | ")
    (one,) = make_examples(language, [""], RecognitionConfig(negatives=1, edited=0), random.Random(0))
    assert not one.inside
    assert one.edits


def test_a_language_of_all_strings_has_no_others(monkeypatch):
    monkeypatch.setattr("ndstack.languages.negatives.MOST_TRIES", 50)
    with pytest.raises(LanguageError, match="50 random strings are all in coins"):
        make_examples(own_parts.coins(), ["ab"], RecognitionConfig(negatives=1), random.Random(0))
