import pytest
from hypothesis import assume, given, settings

from ndstack.automata import (
    BOTTOM,
    RestrictedPDA,
    RestrictedWPDA,
    Transition,
    stringsum,
    unmarked_reversal_pda,
)
from ndstack.automata.compact import compact, variants
from ndstack.automata.merging import merge_types
from ndstack.errors import AutomatonError
from ndstack.grammars import CFG, PCFG, Rule, WeightedCFG, proper, two_greibach
from ndstack.grammars.greibach import quadratic_greibach
from ndstack.languages import ContextFreeLanguage, get
from tests.oracles import all_words, language_of_grammar, language_of_pda, weights_of_grammar
from tests.strategies import ALPHABET, general_pdas, grammars_with_small_automata, pcfgs, restricted_wpdas


def without_weights(pda):
    transitions = tuple(Transition(t.state, t.read, t.pop, t.target, t.push) for t in pda.transitions)
    return RestrictedPDA(transitions, pda.start, pda.accept)


@given(grammars_with_small_automata())
@settings(max_examples=60)
def test_compact_automata_have_the_language_of_the_grammar(grammar):
    pda = compact(grammar)
    assert language_of_pda(pda, ALPHABET, 7) == language_of_grammar(grammar, ALPHABET, 7)


@given(pcfgs(max_rules=2))
@settings(max_examples=40)
def test_compact_automata_keep_weights(grammar):
    clean = proper(grammar)
    rules = tuple(r for r in clean.rules if r.right)
    assume(rules)
    without_empty = WeightedCFG(rules, clean.start)
    assume(len(two_greibach(without_empty).rules) <= 40)
    pda = compact(without_empty)
    assert isinstance(pda, RestrictedWPDA)
    for word, weight in weights_of_grammar(without_empty, ALPHABET, 4).items():
        assert stringsum(pda, word) == pytest.approx(weight, rel=1e-11, abs=1e-14)


@given(general_pdas())
@settings(max_examples=40)
def test_any_pda_can_be_made_compact(pda):
    assert language_of_pda(compact(pda), ALPHABET, 5) == language_of_pda(pda, ALPHABET, 5, max_silent=3)


@given(restricted_wpdas())
@settings(max_examples=200)
def test_merging_keeps_weights(pda):
    merged = merge_types(pda)
    assert len(merged.states) <= len(pda.states)
    assert len(merged.stack_alphabet) <= len(pda.stack_alphabet)
    for word in all_words(ALPHABET, 5):
        assert stringsum(merged, word) == pytest.approx(stringsum(pda, word), rel=1e-12)


@given(restricted_wpdas())
@settings(max_examples=200)
def test_merging_without_weights_keeps_the_language(pda):
    plain = without_weights(pda)
    assert language_of_pda(merge_types(plain), ALPHABET, 6) == language_of_pda(plain, ALPHABET, 6)


def test_states_that_meet_different_symbols_become_one():
    transitions = [
        Transition("p", "a", (BOTTOM,), "q", (BOTTOM, "x")),
        Transition("q", "a", ("x",), "q", ("x", "y")),
        Transition("q", "a", ("y",), "q", ("y", "x")),
        Transition("q", "b", ("x",), "r", ()),
        Transition("q", "b", ("y",), "r", ()),
        Transition("r", "b", ("x",), "r", ()),
        Transition("r", "b", ("y",), "r", ()),
    ]
    merged = merge_types(RestrictedPDA(tuple(transitions), "p", frozenset({"r"})))
    assert len(merged.stack_alphabet) == 2
    assert len(merged.states) == 2
    words = {("a",) * n + ("b",) * n for n in range(1, 4)}
    assert language_of_pda(merged, ALPHABET, 6) == words


def test_an_automaton_that_is_small_stays_as_it_is():
    pda = unmarked_reversal_pda()
    assert len(merge_types(pda).states) == len(pda.states)
    assert len(merge_types(pda).stack_alphabet) == len(pda.stack_alphabet)


def test_start_and_bottom_keep_their_names():
    pda = compact(CFG.fromstring("S -> 'a' S 'b' | 'a' 'b'"))
    assert (pda.start, pda.bottom) == ("q0", BOTTOM)


@pytest.mark.parametrize(
    "name, states, symbols",
    [("dyck", 2, 3), ("marked-reversal", 2, 3), ("unmarked-reversal", 2, 3), ("padded-reversal", 4, 3)],
)
def test_counts_stay_small(name, states, symbols):
    language = get(name)
    assert isinstance(language, ContextFreeLanguage)
    grammar = language.grammar
    plain = CFG(tuple(Rule(r.left, r.right) for r in grammar.rules), grammar.start)
    pda = compact(plain)
    assert (len(pda.states), len(pda.stack_alphabet)) == (states, symbols)


def test_the_weight_of_the_empty_string_must_be_zero_or_one():
    with pytest.raises(AutomatonError, match="gives the empty string weight 0 or 1"):
        compact(PCFG.fromstring("S -> 'a' S 'b' [0.5] | [0.5]"))


@pytest.mark.parametrize(
    "text",
    [
        "S -> 'a' | 'a' N | 'a' N N\nN -> 'b' | 'b' N",
        "S -> 'a' | 'a' N | 'b' M\nN -> 'b' | 'b' N | 'a' M\nM -> 'a' M | 'b'",
        "S -> 'a' S 'b' N | 'a' 'b' N | 'a' 'b'\nN -> 'a' N | 'a'",
        "S -> 'a' N | 'a'\nN -> 'a' M | 'b' N | 'b'\nM -> 'b' M | 'a' N N | 'a' N",
    ],
)
def test_what_may_follow_on_the_bottom(text):
    grammar = CFG.fromstring(text)
    for pda in variants(grammar):
        assert language_of_pda(pda, ALPHABET, 8) == language_of_grammar(grammar, ALPHABET, 8)


@given(grammars_with_small_automata())
@settings(max_examples=40)
def test_all_variants_have_the_language_of_the_grammar(grammar):
    language = language_of_grammar(grammar, ALPHABET, 6)
    for pda in variants(grammar):
        assert language_of_pda(pda, ALPHABET, 6) == language


def test_large_grammars_are_left_large_but_right():
    lists = [
        "'a' S 'b' T",
        "U 'a' T",
        "'b' U",
        "'a'",
        "T U S",
        "'b' 'b'",
        "S 'a'",
        "U U 'b'",
        "'b'",
        "T 'a' S U",
    ]
    names = ["S", "T", "U", "W", "X"]
    text = "\n".join(
        f"{A} -> "
        + " | ".join([*(lists[(3 * i + j) % 10] for j in range(4)), f"'a' {names[(i + 1) % 5]}", "'b'"])
        for i, A in enumerate(names)
    )
    grammar = CFG.fromstring(text)
    assert len(quadratic_greibach(grammar).rules) > 300
    assert language_of_pda(compact(grammar), ALPHABET, 4) == language_of_grammar(grammar, ALPHABET, 4)
