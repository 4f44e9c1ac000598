import pytest
from hypothesis import assume, given

from ndstack.grammars import CFG, PCFG
from ndstack.grammars.reduction import merge_equivalent
from tests.oracles import language_of_grammar, weights_of_grammar
from tests.strategies import ALPHABET, grammars, pcfgs


def test_equivalent_nonterminals_become_one():
    grammar = CFG.fromstring("S -> A B\nA -> 'a' A | 'b'\nB -> 'a' B | 'b'")
    assert [str(r) for r in merge_equivalent(grammar).rules] == ["S -> A A", "A -> 'a' A", "A -> 'b'"]


def test_equivalence_may_go_through_each_other():
    grammar = CFG.fromstring("S -> A | 'c' B\nA -> 'a' B | 'b'\nB -> 'a' A | 'b'")
    assert len(merge_equivalent(grammar).nonterminals) == 2


def test_different_weights_keep_nonterminals_apart():
    text = "S -> A B [1]\nA -> 'a' A [0.5] | 'b' [0.5]\nB -> 'a' B [{}] | 'b' [{}]"
    assert len(merge_equivalent(PCFG.fromstring(text.format(0.5, 0.5))).nonterminals) == 2
    assert len(merge_equivalent(PCFG.fromstring(text.format(0.25, 0.75))).nonterminals) == 3


@given(grammars())
def test_the_language_stays(grammar):
    merged = merge_equivalent(grammar)
    assert language_of_grammar(merged, ALPHABET, 6) == language_of_grammar(grammar, ALPHABET, 6)


@given(pcfgs())
def test_the_weights_stay(grammar):
    before = weights_of_grammar(grammar, ALPHABET, 5)
    assume(before is not None)
    assert weights_of_grammar(merge_equivalent(grammar), ALPHABET, 5) == pytest.approx(before, abs=1e-14)
