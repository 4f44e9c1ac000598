"""Normal forms keep every string's weight: against iteration over all strings up to a length."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ndstack.grammars import (
    CFG,
    PCFG,
    WeightedCFG,
    greibach,
    is_greibach,
    is_two_greibach,
    log_inside,
    proper,
    remove_epsilon,
    remove_unary,
    two_greibach,
)
from ndstack.grammars.greibach import quadratic_greibach
from ndstack.grammars.reduction import factor
from tests.oracles import language_of_grammar, weights_of_grammar
from tests.strategies import ALPHABET, grammars, pcfgs

TOLERANCE = 1e-12


def has_epsilon(grammar):
    return any(not r.right and r.left != grammar.start for r in grammar.rules)


def has_unary(grammar):
    return any(len(r.right) == 1 and not isinstance(r.right[0], str) for r in grammar.rules)


@given(pcfgs())
def test_removal_keeps_the_probability_of_every_string(grammar):
    before = weights_of_grammar(grammar, ALPHABET, 6)
    assume(before is not None)
    for step in (remove_epsilon, remove_unary, proper):
        after = weights_of_grammar(step(grammar), ALPHABET, 6)
        assert after is not None
        assert all(abs(after[w] - p) <= TOLERANCE for w, p in before.items())


@given(pcfgs())
def test_removal_removes(grammar):
    clean = proper(grammar)
    assert not has_epsilon(clean)
    assert not has_unary(clean)
    if any(not rule.right for rule in clean.rules):
        assert clean.start_is_isolated()


@given(grammars())
def test_removal_keeps_the_language_of_a_grammar_without_weights(grammar):
    clean = proper(grammar)
    assert not has_epsilon(clean)
    assert not has_unary(clean)
    assert language_of_grammar(clean, ALPHABET, 7) == language_of_grammar(grammar, ALPHABET, 7)


def test_a_consistent_pcfg_stays_a_pcfg():
    grammar = PCFG.fromstring("S -> S S [0.3] | 'a' [0.3] | S [0.1] | [0.3]")
    assert isinstance(proper(grammar), PCFG)


def test_unary_cycle_in_closed_form():
    """S ⇒ a directly, or after any number of rounds S → T → S: 0.5 / (1 - 0.25)."""
    clean = remove_unary(PCFG.fromstring("S -> T [0.5] | 'a' [0.5]\nT -> S [0.5] | 'b' [0.5]"))
    assert {str(r): pytest.approx(r.weight, abs=1e-15) for r in clean.rules} == {
        "S -> 'a'": 2 / 3,
        "S -> 'b'": 1 / 3,
    }


def test_nonterminal_that_derives_only_epsilon_disappears():
    clean = proper(PCFG.fromstring("S -> N 'a' N [1]\nN -> N N [0.5] | [0.5]"))
    assert [str(r) for r in clean.rules] == ["S -> 'a'"]
    assert clean.rules[0].weight == 1


def test_grammar_of_the_empty_string_alone():
    clean = proper(CFG.fromstring("S -> N N\nN -> N |"))
    assert [str(r) for r in clean.rules] == ["S ->"]
    assert is_two_greibach(two_greibach(clean))


def test_mass_lost_to_endless_derivations_is_not_made_up():
    """N → N N (0.7) | ε (0.3) ends with probability 3/7 only."""
    clean = proper(PCFG.fromstring("S -> 'a' N [1]\nN -> N N [0.7] | [0.3]"))
    assert not isinstance(clean, PCFG)
    assert isinstance(clean, WeightedCFG)
    assert clean.rules[0].weight == pytest.approx(3 / 7, abs=1e-14)


@given(pcfgs(max_right=3, max_rules=2))
def test_greibach_forms_keep_the_weight_of_every_string(grammar):
    before = weights_of_grammar(grammar, ALPHABET, 6)
    assume(before is not None)
    one, two = greibach(grammar), two_greibach(grammar)
    assert is_greibach(one)
    assert is_two_greibach(two)
    for form in (one, two):
        after = weights_of_grammar(form, ALPHABET, 6)
        assert all(abs(after[w] - p) <= TOLERANCE for w, p in before.items())


@given(grammars())
def test_greibach_forms_keep_the_language(grammar):
    language = language_of_grammar(grammar, ALPHABET, 7)
    assert language_of_grammar(greibach(grammar), ALPHABET, 7) == language
    assert language_of_grammar(two_greibach(grammar), ALPHABET, 7) == language


@pytest.mark.parametrize("rest", ["'a' [1e-17] | [1]", "'a' [1e-9] | [0.999999999]"])
def test_almost_certain_epsilon(rest):
    grammar = PCFG.fromstring(f"S -> A A 'b' [1]\nA -> {rest}")
    p, e = (rule.weight for rule in grammar.rules[1:])
    assert log_inside(proper(grammar), "ab") == pytest.approx(math.log(2 * p * e), rel=1e-14)


def test_rules_with_many_nullable_symbols_do_not_explode():
    grammar = PCFG.fromstring(f"S -> {'A ' * 30} [1]\nA -> 'a' [0.5] | [0.5]")
    clean = proper(grammar)
    assert len(clean.rules) < 500
    for n in (0, 1, 15, 30):
        assert math.exp(log_inside(clean, "a" * n)) == pytest.approx(math.comb(30, n) / 2**30, rel=1e-11)


def test_left_recursion_takes_few_rules():
    grammar = CFG.fromstring("S -> S 'a' | S 'b' | 'c'")
    assert {str(r) for r in greibach(grammar).rules} == {
        "S0 -> 'c'",
        "S0 -> 'c' S0/S",
        "S0/S -> 'a'",
        "S0/S -> 'a' S0/S",
        "S0/S -> 'b'",
        "S0/S -> 'b' S0/S",
    }


@pytest.mark.parametrize("text", ["S -> 'a' S 'b' | 'c'", "S -> 'a' S | 'b'", "S -> 'a' B\nB -> |'b'"])
def test_forms_are_told_apart(text):
    grammar = CFG.fromstring(text)
    assert not is_greibach(grammar)
    assert is_greibach(greibach(grammar))
    assert is_two_greibach(two_greibach(grammar))


def test_two_greibach_accepts_a_grammar_in_greibach_form():
    grammar = PCFG.fromstring("S -> 'a' A A [1]\nA -> 'b' [0.5] | 'a' A [0.5]")
    assert log_inside(two_greibach(grammar), "abb") == pytest.approx(log_inside(grammar, "abb"), abs=1e-13)


@pytest.mark.parametrize("cut", ["rest", "first", "last"])
@given(grammars())
@settings(max_examples=60)
def test_quadratic_greibach_form(cut, grammar):
    form = quadratic_greibach(grammar, cut)
    assert is_greibach(form)
    assert max(len(rule.right) for rule in form.rules) <= 3
    language = language_of_grammar(grammar, ALPHABET, 6)
    assert language_of_grammar(form, ALPHABET, 6) == language
    factored = factor(form, limit=10)
    if factored is not None:
        assert is_greibach(factored)
        assert language_of_grammar(factored, ALPHABET, 6) == language


@given(pcfgs(max_rules=2), st.sampled_from(["rest", "first", "last"]))
@settings(max_examples=40)
def test_quadratic_greibach_form_keeps_weights(grammar, cut):
    before = weights_of_grammar(grammar, ALPHABET, 5)
    assume(before is not None)
    form = quadratic_greibach(grammar, cut)
    assert weights_of_grammar(form, ALPHABET, 5) == pytest.approx(before, abs=1e-11)
