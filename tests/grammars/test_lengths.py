import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from nltk import Tree
from scipy.stats import chisquare

from ndstack.errors import LanguageError
from ndstack.grammars import PCFG, LengthTable, log_inside
from tests.oracles import weights_of_grammar
from tests.strategies import ALPHABET, pcfgs

AMBIGUOUS = "S -> S S [0.3] | 'a' S 'b' [0.2] | T [0.1] | 'a' [0.2] | [0.2]\nT -> S [0.5] | 'b' [0.5]"


@given(pcfgs())
def test_table_is_the_total_weight_of_the_strings_of_a_length(grammar):
    weights = weights_of_grammar(grammar, ALPHABET, 6)
    assume(weights is not None)
    table = LengthTable(grammar)
    for length in range(7):
        expected = math.fsum(p for w, p in weights.items() if len(w) == length)
        assert math.exp(table.log_weight(length)) == pytest.approx(expected, abs=1e-13, rel=1e-12)
    assert table.lengths(0, 6) == sorted({len(w) for w, p in weights.items() if p > 0})


def test_table_of_every_nonterminal():
    grammar = PCFG.fromstring("S -> A A [1]\nA -> 'a' [0.5] | 'a' 'a' [0.5]")
    table = LengthTable(grammar)
    A = grammar.rules[0].right[0]
    assert [math.exp(table.log_weight(n, A)) for n in (0, 1, 2, 3)] == [0, 0.5, 0.5, 0]
    assert [math.exp(table.log_weight(n)) for n in (2, 3, 4, 5)] == pytest.approx([0.25, 0.5, 0.25, 0])
    assert table.log_weight(-1) == -math.inf


@pytest.mark.parametrize("length", [3, 4])
def test_sampled_strings_follow_the_exact_distribution(length):
    grammar = PCFG.fromstring(AMBIGUOUS)
    table = LengthTable(grammar)
    rng = np.random.default_rng(7)
    count = 20_000
    seen = Counter(table.sample(length, rng) for _ in range(count))
    exact = {w: p for w, p in weights_of_grammar(grammar, ALPHABET, length).items() if len(w) == length and p}
    total = math.fsum(exact.values())
    assert set(seen) <= set(exact)
    words = list(exact)
    p_value = chisquare([seen[w] for w in words], [count * exact[w] / total for w in words]).pvalue
    assert p_value > 0.001


def test_sampled_trees_follow_the_exact_distribution_of_derivations():
    """Six derivations of aaa from S → S S | a S | a."""
    grammar = PCFG.fromstring("S -> S S [0.4] | 'a' S [0.2] | 'a' [0.4]")
    table = LengthTable(grammar)
    rng = random.Random(3)
    count = 20_000
    seen = Counter(str(table.sample_tree(3, rng)) for _ in range(count))
    assert len(seen) == 6
    weights = {text: _weight(grammar, Tree.fromstring(text)) for text in seen}
    total = math.exp(table.log_weight(3))
    assert math.fsum(weights.values()) == pytest.approx(total, rel=1e-12)
    trees = list(seen)
    assert chisquare([seen[t] for t in trees], [count * weights[t] / total for t in trees]).pvalue > 0.001


def _weight(grammar, tree):
    rules = {(r.left.name, tuple(map(str, r.right))): r.weight for r in grammar.rules}
    own = rules[tree.label(), tuple(c.label() if isinstance(c, Tree) else c for c in tree)]
    return own * math.prod(_weight(grammar, c) for c in tree if isinstance(c, Tree))


def test_the_chi_square_test_notices_a_wrong_distribution():
    """The same test rejects samples of a grammar whose probabilities are off by a tenth."""
    grammar = PCFG.fromstring("S -> 'a' 'a' [0.5] | 'a' 'b' [0.5]")
    other = LengthTable(PCFG.fromstring("S -> 'a' 'a' [0.55] | 'a' 'b' [0.45]"))
    rng = np.random.default_rng(7)
    seen = Counter(other.sample(2, rng) for _ in range(20_000))
    expected = [20_000 * math.exp(log_inside(grammar, w)) for w in ("aa", "ab")]
    assert chisquare([seen["a", "a"], seen["a", "b"]], expected).pvalue < 1e-6


@given(pcfgs())
def test_trees_are_derivations_of_the_grammar_as_given(grammar):
    table = LengthTable(grammar)
    rng = random.Random(0)
    rules = {(r.left.name, tuple(map(str, r.right))) for r in grammar.rules}
    for length in table.lengths(0, 5):
        tree = table.sample_tree(length, rng)
        assert len(tree.leaves()) == length
        assert tree.label() == grammar.start.name
        for node in tree.subtrees():
            assert (node.label(), tuple(c.label() if isinstance(c, Tree) else c for c in node)) in rules


def test_same_seed_same_strings():
    table = LengthTable(PCFG.fromstring(AMBIGUOUS))
    first = [table.sample(9, np.random.default_rng(5)) for _ in range(3)]
    again = LengthTable(PCFG.fromstring(AMBIGUOUS))
    assert [again.sample(9, np.random.default_rng(5)) for _ in range(3)] == first


def test_a_length_without_strings_is_an_error_that_names_others():
    table = LengthTable(PCFG.fromstring("S -> 'a' 'a' S [0.5] | 'a' [0.5]"))
    with pytest.raises(LanguageError, match=r"no strings of length 4; nearby lengths: 1, 3, 5"):
        table.sample(4, random.Random(0))
    with pytest.raises(LanguageError, match="no strings of length 0"):
        table.sample_tree(0, random.Random(0))


def test_long_lengths_do_not_underflow():
    table = LengthTable(PCFG.fromstring("S -> 'a' S [0.001] | 'b' [0.999]"))
    expected = 499 * math.log(0.001) + math.log(0.999)
    assert table.log_weight(500) == pytest.approx(expected, rel=1e-13)
    assert table.sample(500, random.Random(0)) == ("a",) * 499 + ("b",)
