import math

import nltk
import pytest
from hypothesis import assume, given, settings

from ndstack.errors import DivergenceError, GrammarError
from ndstack.grammars import (
    CFG,
    WeightedCFG,
    best_parse,
    best_parses,
    count_parses,
    log_inside,
    parses,
    read_grammar,
)
from tests.oracles import all_words
from tests.strategies import ALPHABET, pcfgs

ENGLISH = read_grammar("""
S -> NP VP
VP -> V NP | VP PP
NP -> NP PP | 'Mary' | 'a man' | 'the park' | 'a telescope'
PP -> P NP
P -> 'in' | 'with'
V -> 'saw'
""")
SENTENCE = ("Mary", "saw", "a man", "in", "the park", "with", "a telescope")


def weight(grammar, tree):
    rules = {(r.left.name, tuple(map(str, r.right))): r.weight for r in grammar.rules}
    children = tuple(c.label() if isinstance(c, nltk.Tree) else c for c in tree)
    inner = (weight(grammar, c) for c in tree if isinstance(c, nltk.Tree))
    return rules[tree.label(), children] * math.prod(inner)


def test_the_ambiguous_sentence_has_the_parses_that_nltk_finds():
    theirs = {str(t) for t in nltk.ChartParser(nltk.CFG.fromstring(str(ENGLISH))).parse(list(SENTENCE))}
    ours = [str(t) for t in parses(ENGLISH, SENTENCE)]
    assert set(ours) == theirs
    assert len(ours) == len(theirs) == count_parses(ENGLISH, SENTENCE) == 5


def trees_of(grammar, symbols, word, depth):
    """Every forest of trees over symbols with these leaves and at most this depth, with its weight."""
    if not symbols:
        return [((), 1.0)] if not word else []
    first, *rest = symbols
    found = []
    for cut in range(len(word) + 1):
        if isinstance(first, str):
            heads = [(first, 1.0)] if word[:cut] == (first,) else []
        elif depth == 0:
            heads = []
        else:
            heads = [
                (nltk.Tree(first.name, list(below)), rule.weight * w)
                for rule in grammar.rules_for(first)
                for below, w in trees_of(grammar, rule.right, word[:cut], depth - 1)
            ]
        if heads:
            tails = trees_of(grammar, rest, word[cut:], depth)
            found += [((head, *tail), w * v) for head, w in heads for tail, v in tails]
    return found


@given(pcfgs(max_rules=2))
@settings(max_examples=60, deadline=None)
def test_count_and_best_trees_are_those_of_an_enumeration(grammar):
    for word in all_words(ALPHABET, 2):
        count = count_parses(grammar, word)
        if count == 0:
            assert best_parses(grammar, word, 3) == []
            continue
        ours = [(log, str(tree)) for log, tree in best_parses(grammar, word, 6)]
        assert len({tree for _, tree in ours}) == len(ours) == min(count, 6)
        everything = {str(tree): w for (tree,), w in trees_of(grammar, (grammar.start,), word, 5)}
        for log, tree in ours:
            if tree in everything:
                assert math.exp(log) == pytest.approx(everything[tree], rel=1e-12)
        if count < math.inf and len(everything) == count:  # all trees are within the depth
            best = sorted(everything.values(), reverse=True)[:6]
            assert [math.exp(log) for log, _ in ours] == pytest.approx(best, rel=1e-9)
        else:  # what the enumeration missed is deeper; what it has may not be better than our last
            assert len(ours) == 6 or len(everything) < count
            beyond = [w for tree, w in everything.items() if tree not in {t for _, t in ours}]
            assert all(math.log(w) <= ours[-1][0] + 1e-9 for w in beyond) or len(ours) < 6


def test_catalan_many_parses():
    grammar = CFG.fromstring("S -> S S | 'a'")
    assert [count_parses(grammar, "a" * n) for n in range(1, 8)] == [1, 1, 2, 5, 14, 42, 132]
    assert count_parses(grammar, "ab") == 0


def test_many_parses_are_counted_without_rounding():
    grammar = CFG.fromstring("S -> S S | 'a'")
    assert count_parses(grammar, "a" * 41) == math.comb(80, 40) // 41


@given(pcfgs())
@settings(max_examples=80)
def test_all_parses_add_up_to_the_inside_weight_and_the_best_is_best(grammar):
    for word in all_words(ALPHABET, 3):
        count = count_parses(grammar, word)
        if count == 0:
            assert log_inside(grammar, word) == -math.inf
            continue
        best, tree = best_parse(grammar, word)
        assert tuple(tree.leaves()) == word
        assert math.exp(best) == pytest.approx(weight(grammar, tree), rel=1e-12)
        assert best <= log_inside(grammar, word) + 1e-12
        if count < 200:
            weights = [weight(grammar, t) for t in parses(grammar, word)]
            assert len(weights) == count
            assert math.fsum(weights) == pytest.approx(math.exp(log_inside(grammar, word)), rel=1e-11)
            assert max(weights) == pytest.approx(math.exp(best), rel=1e-12)


def test_parses_are_distinct():
    trees = [str(t) for t in parses(CFG.fromstring("S -> S S | 'a'"), "aaaaa")]
    assert len(set(trees)) == 14


def test_empty_cycles_mean_infinitely_many_parses_but_one_best():
    grammar = read_grammar("S -> S S [0.3] | 'a' [0.3] | S [0.1] | [0.3]")
    assert count_parses(grammar, "a") == math.inf
    log_weight, tree = best_parse(grammar, "a")
    assert str(tree) == "(S a)"
    assert log_weight == pytest.approx(math.log(0.3))
    with pytest.raises(DivergenceError, match="infinitely many parses"):
        next(parses(grammar, "a"))


def test_no_best_parse_where_a_cycle_gains_weight():
    grammar = WeightedCFG.fromstring("S -> S [0.5] | 'a' [7]")
    assert best_parse(grammar, "a")[0] == pytest.approx(math.log(7))
    with pytest.raises(DivergenceError):
        best_parse(WeightedCFG.fromstring("S -> S [2] | 'a' [1]"), "a")


def test_a_cycle_of_weight_one_is_no_gain():
    """2 · 3 · 1/6 = 1, but not in floating point."""
    grammar = WeightedCFG.fromstring(f"S -> A [2] | 'x' [1]\nA -> B [3]\nB -> S [{1 / 6!r}]")
    log_weight, tree = best_parse(grammar, "x")
    assert str(tree) == "(S x)"
    assert log_weight == 0


def test_no_best_parse_outside_the_language():
    with pytest.raises(GrammarError, match="does not generate"):
        best_parse(ENGLISH, ("Mary",))


@given(pcfgs())
@settings(max_examples=30)
def test_heaviest_parse_of_a_plain_grammar_weighs_one(grammar):
    plain = CFG(tuple(type(r)(r.left, r.right) for r in grammar.rules), grammar.start)
    words = [w for w in all_words(ALPHABET, 2) if count_parses(plain, w)]
    assume(words)
    assert all(best_parse(plain, w)[0] == 0 for w in words)
