"""The true next-symbol distribution against sums over all strings, and the chain rule."""

import math
from itertools import product

import numpy as np
import pytest

from ndstack import languages
from ndstack.grammars import PCFG

GRAMMARS = {
    "empty and unary rules": "S -> A B [0.4] | A [0.3] | [0.3]\nA -> 'a' A [0.3] | B [0.3] | [0.4]\n"
    "B -> 'b' S 'a' [0.4] | 'b' [0.6]",
    "one string": "S -> 'a' 'b' [1.0]",
}


def by_strings(language, word, low, high):
    lengths = language.lengths(low, high)
    found = np.zeros((len(word) + 1, len(language.alphabet) + 1))
    for length in lengths:
        for w in product(language.alphabet, repeat=length):
            p = math.exp(language.log_probability(w)) / len(lengths)
            for t in range(min(len(word), length) + 1):
                if p and w[:t] == tuple(word[:t]):
                    found[t, language.alphabet.index(w[t]) if t < length else -1] += p
    return found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300)


@pytest.mark.parametrize("name", [*(n for n in languages.NAMES if n != "hardest-cfl"), *GRAMMARS])
def test_next_symbols_are_those_of_all_strings(name):
    if name in GRAMMARS:
        language = languages.from_grammar(PCFG.fromstring(GRAMMARS[name]))
    else:
        language = languages.get(name)
    longest, rng = language.lengths(1, 6)[-1], np.random.default_rng(0)
    words = [language.sample(longest, rng), language.sample(longest, rng), language.alphabet * 2, ""]
    for word in words:
        got = language.next_symbols(word, (1, 6))
        np.testing.assert_allclose(got, by_strings(language, word, 1, 6), atol=1e-12)


@pytest.mark.parametrize("name", languages.NAMES)
def test_their_product_is_the_probability_of_the_string(name):
    language = languages.get(name)
    lengths = language.lengths(40, 80)
    word = language.sample(lengths[-1], np.random.default_rng(1))
    rows = language.next_symbols(word, (40, 80))
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-12)
    places = [*(language.alphabet.index(a) for a in word), -1]
    log = sum(math.log(row[place]) for row, place in zip(rows, places, strict=True))
    assert log == pytest.approx(language.log_probability(word) - math.log(len(lengths)), abs=1e-10)


def test_a_prefix_of_no_string_is_followed_by_nothing():
    rows = languages.get("dyck").next_symbols("(]x", (2, 10))
    np.testing.assert_allclose(rows[1].sum(), 1)
    assert not rows[2:].any()
