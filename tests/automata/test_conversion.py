import math

import pytest
from hypothesis import assume, given, settings

from ndstack.automata import (
    BOTTOM,
    BottomMarkedPDA,
    RestrictedPDA,
    RestrictedWPDA,
    Transition,
    accepting_runs,
    accepts,
    best_run,
    bottom_marked,
    restrict,
    stringsum,
    to_grammar,
    to_restricted,
    trim_restricted,
    unmarked_reversal_pda,
)
from ndstack.errors import AutomatonError, GrammarError
from ndstack.grammars import (
    CFG,
    PCFG,
    Nonterminal,
    Rule,
    WeightedCFG,
    greibach,
    log_inside,
    null_weights,
    proper,
    two_greibach,
)
from tests.oracles import all_words, language_of_grammar, language_of_pda, weights_of_grammar
from tests.strategies import ALPHABET, general_pdas, grammars_with_small_automata, pcfgs, restricted_wpdas


@given(grammars_with_small_automata())
@settings(max_examples=100)
def test_grammar_greibach_forms_and_automata_have_one_language(grammar):
    language = language_of_grammar(grammar, ALPHABET, 7)
    two = two_greibach(grammar)
    marked = bottom_marked(two)
    restricted = restrict(marked)
    assert language_of_grammar(greibach(grammar), ALPHABET, 7) == language
    assert language_of_grammar(two, ALPHABET, 7) == language
    assert language_of_pda(marked, ALPHABET, 7) == language
    assert language_of_pda(restricted, ALPHABET, 7) == language
    assert {w for w in all_words(ALPHABET, 5) if accepts(restricted, w)} == {
        w for w in language if len(w) <= 5
    }


@given(pcfgs(max_rules=2))
@settings(max_examples=60)
def test_conversion_of_a_weighted_grammar_keeps_the_weights(grammar):
    """Without the empty string, whose weight a real-time automaton cannot choose."""
    clean = proper(grammar)
    rules = tuple(r for r in clean.rules if r.right)
    assume(rules)
    without_empty = WeightedCFG(rules, clean.start)
    assume(len(greibach(without_empty).rules) <= 40)
    expected = weights_of_grammar(without_empty, ALPHABET, 4)
    pda = to_restricted(without_empty)
    assert isinstance(pda, RestrictedWPDA)
    for word, weight in expected.items():
        assert stringsum(pda, word) == pytest.approx(weight, rel=1e-11, abs=1e-14)


@given(general_pdas())
@settings(max_examples=100)
def test_any_pda_goes_to_an_equivalent_grammar_and_restricted_pda(pda):
    language = language_of_pda(pda, ALPHABET, 5, max_silent=3)
    restricted = to_restricted(pda)
    assert isinstance(restricted, RestrictedPDA)
    assert language_of_pda(restricted, ALPHABET, 5) == language
    try:
        grammar = to_grammar(pda)
    except AutomatonError:
        assert not language
    else:
        assert language_of_grammar(grammar, ALPHABET, 5) == language


@given(general_pdas(weighted=True))
@settings(max_examples=60)
def test_grammar_of_a_weighted_pda_keeps_the_weights(pda):
    for word in all_words(ALPHABET, 3):
        total = math.fsum(run.weight for run in accepting_runs(pda, word, max_steps=16))
        try:
            found = math.exp(log_inside(to_grammar(pda), word))
        except AutomatonError:
            found = 0.0
        assert found == pytest.approx(total, rel=1e-11, abs=1e-300)


@given(restricted_wpdas())
@settings(max_examples=60)
def test_trimming_keeps_the_accepting_runs(pda):
    trimmed = trim_restricted(pda)
    used = set()
    for word in all_words(ALPHABET, 5):
        before, after = list(accepting_runs(pda, word)), list(accepting_runs(trimmed, word))
        assert sorted(map(str, before)) == sorted(map(str, after))
        used |= {t for run in after for t in run.transitions}
    assert used <= set(trimmed.transitions) <= set(pda.transitions)


def test_trimming_drops_what_cannot_accept():
    keep = [Transition("q", "a", (BOTTOM,), "q", (BOTTOM, "x")), Transition("q", "b", ("x",), "q", ())]
    unreachable = Transition("r", "a", (BOTTOM,), "q", (BOTTOM,))
    dead_end = Transition("q", "b", ("x",), "d", ("y",))
    pda = RestrictedPDA((*keep, unreachable, dead_end), "q", frozenset({"q", "r"}))
    trimmed = trim_restricted(pda)
    assert trimmed.transitions == tuple(keep)
    assert trimmed.accept == {"q"}


def test_counts_stay_small():
    """Marked reversal: with a state for every rule and all strings of stack symbols, 14 and 20."""
    pda = to_restricted(CFG.fromstring("S -> '0' S '0' | '1' S '1' | '#'"))
    assert len(pda.states) == 3
    assert len(pda.stack_alphabet) == 9


def test_restricted_automata_are_left_alone():
    pda = unmarked_reversal_pda()
    assert to_restricted(pda) is pda


def test_an_automaton_that_accepts_nothing():
    pda = BottomMarkedPDA((Transition("q", "a", (BOTTOM,), "r", (BOTTOM, "x")),), "q", frozenset({"r"}))
    assert to_restricted(pda).transitions == ()
    assert language_of_pda(to_restricted(pda), ALPHABET, 3) == set()
    with pytest.raises(AutomatonError, match="accepts no string"):
        to_grammar(pda)


def test_names_that_look_like_our_own_do_not_clash():
    t = [
        Transition("/first", "a", (), "/end", ("/floor",)),
        Transition("/end", "b", ("/floor",), "//end", ()),
    ]
    pda = type(to_pda := general(t))(to_pda.transitions, "/first", frozenset({"//end"}))
    assert language_of_grammar(to_grammar(pda), ALPHABET, 4) == {("a", "b")}


def general(transitions):
    from ndstack.automata import PDA

    return PDA(tuple(transitions), "/first", frozenset())


def test_lemma_3_needs_two_greibach_normal_form():
    with pytest.raises(GrammarError, match=r"not in \(2-\)Greibach normal form"):
        bottom_marked(CFG.fromstring("S -> S 'a' | 'a'"))


def test_the_weight_of_the_empty_string_must_be_zero_or_one():
    grammar = two_greibach(PCFG.fromstring("S -> 'a' S 'b' [0.5] | [0.5]"))
    with pytest.raises(AutomatonError, match="gives the empty string weight 0 or 1"):
        bottom_marked(grammar)
    scaled = WeightedCFG(
        tuple(Rule(r.left, r.right, r.weight / null_weights(grammar)[grammar.start])
              if r.left == grammar.start else r for r in grammar.rules), grammar.start)  # fmt: skip
    assert stringsum(restrict(bottom_marked(scaled)), "") == 1


@pytest.mark.parametrize(
    "transition, message",
    [
        (Transition("q", "", ("x",), "q", ()), "is not of the form"),
        (Transition("q", "a", ("x",), "q", ("y", "x")), "is not of the form"),
        (Transition("q", "a", (BOTTOM,), "q", (BOTTOM, "x", BOTTOM)), "would become part of"),
    ],
)
def test_lemma_4_checks_its_input(transition, message):
    with pytest.raises(AutomatonError, match=message):
        restrict(BottomMarkedPDA((transition,), "q", frozenset()))


def test_a_bottom_symbol_within_a_string_is_refused_and_goes_by_the_grammar():
    push = Transition("q", "a", (BOTTOM,), "q", (BOTTOM, "x", "y"))
    pda = BottomMarkedPDA((push, Transition("q", "b", ("y",), "q", (BOTTOM,))), "q", frozenset({"q"}))
    with pytest.raises(AutomatonError, match="would become part of x⊥"):
        restrict(pda)
    assert language_of_pda(to_restricted(pda), ALPHABET, 4) == language_of_pda(pda, ALPHABET, 4)
    assert accepts(to_restricted(pda), "ab")


def test_stack_symbols_that_look_like_packed_ones():
    push = [
        Transition("q", "a", (BOTTOM,), "q", (BOTTOM, "x", "y")),
        Transition("q", "b", (BOTTOM,), "q", (BOTTOM, "[x y]")),
    ]
    pop = [Transition("q", "b", (s,), "q", ()) for s in ("x", "y", "[x y]")]
    pda = BottomMarkedPDA((*push, *pop), "q", frozenset({"q"}))
    assert language_of_pda(restrict(pda), ALPHABET, 6) == language_of_pda(pda, ALPHABET, 6)


@pytest.mark.parametrize("name", ["q0", "loop", "end", "q1", "s", "start"])
def test_nonterminals_may_have_the_names_of_states(name):
    from ndstack.automata.compact import compact

    grammar = CFG.fromstring(f"S -> 'a' {name} 'b' | 'b'\n{name} -> 'a' S | S 'b' {name} | 'a'")
    language = language_of_grammar(grammar, ALPHABET, 6)
    for pda in (to_restricted(grammar), compact(grammar)):
        assert language_of_pda(pda, ALPHABET, 6) == language


def test_a_nonterminal_called_like_the_bottom_symbol_is_refused():
    S, bottom = Nonterminal("S"), Nonterminal(BOTTOM)
    grammar = CFG((Rule(S, ("a", bottom)), Rule(bottom, ("b",))), S)
    with pytest.raises(GrammarError, match="has the name of the bottom symbol"):
        to_restricted(grammar)


def test_stack_symbols_of_terminals_are_called_after_them():
    """Variables of the grammar keep their names; those that the normal form adds have no numbers."""
    dyck = CFG.fromstring("S -> S T | T\nT -> '(' S ')' | '(' ')' | '[' S ']' | '[' ']'")
    pda = to_restricted(dyck)
    assert {"⊥", "S", "')'", "']'"} <= set(pda.stack_alphabet)
    assert not any("T0" in symbol or "T1" in symbol for symbol in pda.stack_alphabet)
    assert best_run(pda, "([])").configurations[2].stack == ("⊥", "')'", "']'")
    own = to_restricted(CFG.fromstring("S -> 'a' S B | 'a' B\nB -> 'b'"))
    assert set(own.stack_alphabet) == {"⊥", "B", "[B B]", "[B S]"}
