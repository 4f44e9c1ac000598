"""Recognisers compiled from grammars agree with the grammars (section 8.3)."""

import numpy as np
import pytest
from hypothesis import given, settings

from ndstack.grammars import CFG, LengthTable, generates, uniform
from ndstack.nn.proofs import examples
from ndstack.nn.proofs.recognition import recognizer
from tests.oracles import all_words, language_of_grammar
from tests.strategies import ALPHABET, grammars_with_small_automata


def accepted(network, words):
    return {word for word, y in zip(words, network(words).tolist(), strict=True) if y > 0.5}


ONE_BRACKET = "S -> '(' S ')' S |"
SHORT_ENGLISH = "S -> N VP\nVP -> 'v' N | VP PP\nN -> N PP | 'n'\nPP -> 'p' N"

SINGLE = {
    "dyck": (examples.dyck(), 6),
    "one bracket": (CFG.fromstring(ONE_BRACKET), 8),
    "palindromes": (examples.palindromes(), 8),
    "marked reversal": (CFG.fromstring("S -> '0' S '0' | '1' S '1' | '#'"), 8),
    "equal counts": (CFG.fromstring("S -> 'a' S 'b' S | 'b' S 'a' S |"), 8),
    "english": (examples.english(), 4),
    "english of three words": (CFG.fromstring(SHORT_ENGLISH), 8),
}
SEVERAL = {
    "three-counts": (examples.three_counts(), 8),
    "cross-serial": (examples.cross_serial(), 7),
    "four-counts": (examples.four_counts(), 7),
}


@pytest.mark.parametrize("name", SINGLE)
def test_every_short_string(name):
    grammar, length = SINGLE[name]
    words = all_words(grammar.terminals, length)
    language = language_of_grammar(grammar, grammar.terminals, length)
    assert len(language) > 0
    assert accepted(recognizer(grammar), words) == language


@pytest.mark.parametrize("name", SEVERAL)
def test_every_short_string_of_an_intersection(name):
    parts, length = SEVERAL[name]
    alphabet = parts[0].terminals
    languages = [language_of_grammar(grammar, alphabet, length) for grammar in parts]
    common = set.intersection(*languages)
    assert common not in languages
    assert accepted(recognizer(parts), all_words(alphabet, length)) == common


@pytest.mark.parametrize("name", ["cross-serial", "four-counts"])
def test_every_ordered_string_of_an_intersection(name):
    """a*b*c*d* up to length 8: the strings that some part accepts are among them."""
    parts, _ = SEVERAL[name]
    words = sorted_words("abcd", 8)
    expected = {w for w in words if all(generates(grammar, w) for grammar in parts)}
    assert len(expected) > 2
    assert accepted(recognizer(parts), words) == expected


def sorted_words(alphabet, length):
    if not alphabet:
        return [()]
    return [
        (alphabet[0],) * n + rest
        for n in range(length + 1)
        for rest in sorted_words(alphabet[1:], length - n)
    ]


def spoilt(word, alphabet, rng):
    """The word with one symbol changed, left out or added, or two swapped."""
    word, place = list(word), int(rng.integers(len(word)))
    match rng.integers(4):
        case 0:
            word[place] = alphabet[rng.integers(len(alphabet))]
        case 1:
            del word[place]
        case 2:
            word.insert(place, alphabet[rng.integers(len(alphabet))])
        case _:
            other = rng.integers(len(word))
            word[place], word[other] = word[other], word[place]
    return tuple(word[:40])


@pytest.mark.parametrize("name", SINGLE)
def test_long_strings(name):
    grammar, _ = SINGLE[name]
    rng = np.random.default_rng(1)
    table = LengthTable(uniform(grammar))
    lengths = rng.choice(table.lengths(1, 40), 100)
    members = [table.sample(int(length), rng) for length in lengths]
    words = [*members, *(spoilt(word, grammar.terminals, rng) for word in members)]
    expected = {word for word in words if generates(grammar, word)}
    assert expected >= set(members)
    assert set(words) - expected
    assert accepted(recognizer(grammar), words) == expected


def powers(*counts):
    return tuple(symbol for symbol, count in zip("abcd", counts, strict=False) for _ in range(count))


MEMBERS = {
    "three-counts": lambda rng: powers(*[rng.integers(14)] * 3),
    "cross-serial": lambda rng: powers(*[*rng.integers(11, size=2)] * 2),
    "four-counts": lambda rng: powers(*[rng.integers(11)] * 4),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_long_strings_of_an_intersection(name):
    parts, _ = SEVERAL[name]
    alphabet = parts[0].terminals
    rng = np.random.default_rng(1)
    members = [MEMBERS[name](rng) for _ in range(100)]
    near = [spoilt(word, alphabet, rng) for word in members[:60] if word]
    tables = [LengthTable(uniform(grammar)) for grammar in parts]
    of_parts = [tables[i % len(parts)].sample(int(rng.integers(1, 41)), rng) for i in range(40)]
    words = [*members, *near, *of_parts]
    expected = {word for word in words if all(generates(grammar, word) for grammar in parts)}
    assert expected >= set(members)
    assert max(map(len, expected)) > 36
    assert len(set(words) - expected) > 50
    assert accepted(recognizer(parts), words) == expected


@given(grammars_with_small_automata())
@settings(max_examples=25)
def test_any_grammar(grammar):
    network = recognizer(grammar)
    words = all_words(ALPHABET, 5)
    assert accepted(network, words) == language_of_grammar(grammar, ALPHABET, 5)


@given(grammars_with_small_automata(), grammars_with_small_automata())
@settings(max_examples=20)
def test_any_two_grammars(one, other):
    words = all_words(ALPHABET, 4)
    expected = language_of_grammar(one, ALPHABET, 4) & language_of_grammar(other, ALPHABET, 4)
    assert accepted(recognizer([one, other]), words) == expected
