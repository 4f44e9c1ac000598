import math

import numpy as np
import pytest
from hypothesis import assume, given

from ndstack.errors import DivergenceError
from ndstack.grammars import CFG, PCFG, WeightedCFG, is_consistent, null_weights, total_weight, total_weights
from ndstack.grammars.fixed_point import star
from ndstack.grammars.graphs import strongly_connected_components
from tests.oracles import weights_of_grammar
from tests.strategies import ALPHABET, pcfgs


def test_total_in_closed_form():
    """Z = p Z² + 1 - p: 1 up to p = 1/2, then (1 - p) / p."""
    for p in (0.1, 0.3, 0.49, 0.5, 0.51, 0.7, 0.9):
        total = total_weight(PCFG.fromstring(f"S -> S S [{p}] | 'a' [{1 - p}]"))
        assert total == pytest.approx(min(1, (1 - p) / p), rel=1e-12)


@pytest.mark.parametrize(
    "p, consistent", [(0.3, True), (0.4999, True), (0.5, True), (0.501, False), (0.9, False)]
)
def test_consistent_grammars(p, consistent):
    assert is_consistent(PCFG.fromstring(f"S -> S S [{p}] | 'a' [{1 - p}]")) is consistent
    assert is_consistent(PCFG.fromstring(f"S -> A 'b' [1]\nA -> A A A [{p / 2}] | [{1 - p / 2}]")) is (
        p < 2 / 3
    )


def test_critical_grammar_is_exactly_one():
    assert total_weight(PCFG.fromstring("S -> S S [0.5] | 'a' [0.5]")) == 1.0


def test_sums_of_all_nonterminals():
    grammar = WeightedCFG.fromstring("S -> A B [2]\nA -> 'a' A [0.5] | 'a' [1]\nB -> 'b' [3] | [1]")
    assert {A.name: z for A, z in total_weights(grammar).items()} == pytest.approx({"S": 16, "A": 2, "B": 4})


@pytest.mark.parametrize(
    "text", ["S -> S S [1] | 'a' [1]", "S -> 'a' S [1] | 'a' [1]", "S -> 'a' S [2] | 'b' [1]"]
)
def test_infinite_totals_are_errors(text):
    with pytest.raises(DivergenceError, match="derivations from S is infinite"):
        total_weight(WeightedCFG.fromstring(text))


def test_just_beyond_the_brink_is_an_error():
    assert total_weight(WeightedCFG.fromstring("S -> S S [1] | 'a' [0.25]")) == pytest.approx(0.5, abs=1e-7)
    with pytest.raises(DivergenceError):
        total_weight(WeightedCFG.fromstring("S -> S S [1] | 'a' [0.250001]"))


@given(pcfgs())
def test_null_weights_are_the_probability_of_the_empty_string(grammar):
    weights = weights_of_grammar(grammar, ALPHABET, 0)
    assume(weights is not None)
    assert null_weights(grammar)[grammar.start] == pytest.approx(weights[()], abs=1e-13)


def test_null_weights_of_a_plain_grammar_say_who_derives_epsilon():
    grammar = CFG.fromstring("S -> A B | 'a'\nA -> A A |\nB -> 'b' | A")
    assert {A.name: z for A, z in null_weights(grammar).items()} == {"S": 1, "A": 1, "B": 1}
    assert null_weights(CFG.fromstring("S -> A 'b'\nA -> |'a'"))[CFG.fromstring("S -> 'a'").start] == 0


def test_star_is_the_geometric_series():
    rng = np.random.default_rng(0)
    matrix = rng.random((4, 4)) / 6
    series = sum(np.linalg.matrix_power(matrix, n) for n in range(400))
    assert np.allclose(star(matrix, "test"), series, atol=1e-13)
    with pytest.raises(DivergenceError, match="test: a cycle"):
        star(np.array([[0.0, 2.0], [0.5, 0.0]]), "test")


def test_star_keeps_the_digits_of_small_entries():
    """Four states in a ring with loops: the exact answer in rationals."""
    from fractions import Fraction

    small = Fraction(1, 10**6)
    exact = [[Fraction(9, 10) if i == j else Fraction(0) for j in range(4)] for i in range(4)]
    for i in range(4):
        exact[i][(i + 1) % 4] += small
    matrix = np.array([[float(x) for x in row] for row in exact])
    rows = [[Fraction(int(i == j)) - Fraction(matrix[i, j]) for j in range(4)] for i in range(4)]
    rows = [row + [Fraction(int(i == j)) for j in range(4)] for i, row in enumerate(rows)]
    for k in range(4):
        rows[k] = [x / rows[k][k] for x in rows[k]]
        rows = [row if i == k else [x - row[k] * y for x, y in zip(row, rows[k], strict=True)]
                for i, row in enumerate(rows)]  # fmt: skip
    expected = np.array([[float(x) for x in row[4:]] for row in rows])
    assert np.allclose(star(matrix, "test"), expected, rtol=1e-13, atol=0)


def test_slightly_supercritical_is_not_rounded_to_one():
    p = 0.5000002
    total = total_weight(PCFG.fromstring(f"S -> S S [{p}] | 'a' [{1 - p!r}]"))
    assert total == pytest.approx((1 - p) / p, abs=1e-8)
    assert total < 1 - 1e-7


def test_components_come_after_what_they_point_to():
    components = strongly_connected_components([[1], [2, 3], [1], [4], []])
    assert [sorted(c) for c in components] == [[4], [3], [1, 2], [0]]
    assert math.prod(map(len, components)) == 2
