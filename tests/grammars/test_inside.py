import math

import numpy as np
import pytest
from hypothesis import assume, given

from ndstack.grammars import PCFG, WeightedCFG, generates, log_inside
from ndstack.grammars.inside import log_inside_reference
from tests.oracles import all_words, language_of_grammar, weights_of_grammar
from tests.strategies import ALPHABET, grammars, pcfgs


def exp(x):
    return math.exp(x) if x > -math.inf else 0.0


@given(pcfgs())
def test_inside_equals_the_sum_over_derivations(grammar):
    expected = weights_of_grammar(grammar, ALPHABET, 5)
    assume(expected is not None)
    for word, p in expected.items():
        assert exp(log_inside(grammar, word)) == pytest.approx(p, abs=1e-13, rel=1e-12)


@given(pcfgs())
def test_compiled_kernel_equals_the_log_space_reference(grammar):
    known = set(grammar.terminals)
    for word in all_words(ALPHABET, 4)[1:]:
        if set(word) <= known:
            assert log_inside(grammar, word) == pytest.approx(log_inside_reference(grammar, word), abs=1e-12)


@given(grammars())
def test_membership_equals_the_language(grammar):
    language = language_of_grammar(grammar, ALPHABET, 5)
    assert {w for w in all_words(ALPHABET, 5) if generates(grammar, w)} == language


def test_symbols_outside_the_alphabet_have_probability_zero():
    grammar = PCFG.fromstring("S -> 'a' S [0.5] | 'a' [0.5]")
    assert log_inside(grammar, "axa") == -math.inf
    assert log_inside(grammar, "") == -math.inf


@pytest.mark.compiled
def test_long_strings_do_not_underflow():
    """p(a^n) = 0.001^n: far below the smallest double at n = 400."""
    grammar = WeightedCFG.fromstring("S -> 'a' S [0.001] | 'a' [0.001]")
    assert log_inside(grammar, "a" * 400) == pytest.approx(400 * math.log(0.001), rel=1e-13)


@pytest.mark.parametrize("tiny", [1e-50, 1e-120, 1e-300])
def test_a_symbol_far_below_its_rivals_is_not_lost(tiny):
    """In the span aa the symbol X weighs tiny² and Y 1; only X leads to S."""
    grammar = WeightedCFG.fromstring(
        f"S -> X 'b' [1] | Y 'c' [1]\nX -> A A [1]\nY -> B B [1]\nA -> 'a' [{tiny}]\nB -> 'a' [1]"
    )
    expected = 2 * math.log(tiny)
    assert log_inside(grammar, "aab") == pytest.approx(expected, rel=1e-13)
    assert log_inside(grammar, "aac") == pytest.approx(0, abs=1e-13)


def test_a_split_far_below_its_rivals_is_not_lost():
    """The two ways to divide abb differ by 400 nats, and each leads to a different symbol."""
    grammar = WeightedCFG.fromstring(
        "S -> P 'd' [1] | R 'e' [1]\nP -> 'a' M [1]\nM -> 'b' 'b' [1]\nR -> N 'b' [1]\nN -> 'a' 'b' [1e-180]"
    )
    assert log_inside(grammar, "abbe") == pytest.approx(math.log(1e-180), rel=1e-13)
    assert log_inside(grammar, "abbd") == pytest.approx(0, abs=1e-13)


def test_rare_unary_chains_are_not_lost():
    grammar = PCFG.fromstring(
        "S -> S [0.9] | A [1e-6] | 's' [0.099999]\nA -> C [1e-6] | 'a' [0.999999]\n"
        "B -> S [0.9] | 'b' [0.1]\nC -> A [0.9] | B [1e-6] | 'c' [0.099999]"
    )
    assert log_inside(grammar, "b") == pytest.approx(-41.4465, abs=1e-4)
    expected = weights_of_grammar(grammar, ("s", "a", "b", "c"), 1)
    for word in ("s", "a", "b", "c"):
        assert math.exp(log_inside(grammar, word)) == pytest.approx(expected[(word,)], rel=1e-12)


@pytest.mark.parametrize("text, word, expected", [
    ("S -> A [1e-200]\nA -> 'a' 'a' [1e-200]", "aa", 2 * math.log(1e-200)),
    ("S -> A A [1e-160] | Y 'c' [1]\nA -> 'a' [1e-85]\nY -> B B [1]\nB -> 'a' [1]", "aa",
     math.log(1e-160) + 2 * math.log(1e-85)),
])  # fmt: skip
def test_products_that_underflow_are_done_in_log_space(text, word, expected):
    assert log_inside(WeightedCFG.fromstring(text), word) == pytest.approx(expected, rel=1e-13)


@pytest.mark.compiled
def test_catalan_numbers():
    """The uniform grammar S → S S | a gives a^n the weight C_{n-1} 2^{-(2n-1)}."""
    grammar = PCFG.fromstring("S -> S S [0.5] | 'a' [0.5]")
    for n in (1, 2, 3, 10, 60, 200):
        catalan = math.lgamma(2 * n - 1) - math.lgamma(n + 1) - math.lgamma(n)
        expected = catalan - (2 * n - 1) * math.log(2)
        assert log_inside(grammar, "a" * n) == pytest.approx(expected, rel=1e-12)


def test_probabilities_of_a_finite_language_sum_to_one():
    grammar = PCFG.fromstring("S -> A A A [1]\nA -> 'a' [0.2] | 'b' [0.3] | [0.5]")
    total = math.fsum(exp(log_inside(grammar, w)) for w in all_words(ALPHABET, 3))
    assert total == pytest.approx(1, abs=1e-14)
    assert np.isclose(exp(log_inside(grammar, "ab")), 3 * 0.2 * 0.3 * 0.5)
