import math

import pytest
from hypothesis import assume, given, settings

from ndstack.automata import (
    BOTTOM,
    PDA,
    RestrictedPDA,
    RestrictedWPDA,
    Transition,
    WeightedPDA,
    accepting_runs,
    accepts,
    allsum,
    log_probability,
    stringsum,
    to_restricted,
    union,
    unmarked_reversal_pda,
)
from ndstack.errors import AutomatonError, DivergenceError
from ndstack.grammars import CFG
from tests.oracles import all_words, language_of_pda
from tests.strategies import ALPHABET, grammars_with_small_automata, restricted_wpdas


@given(grammars_with_small_automata(), grammars_with_small_automata())
@settings(max_examples=40)
def test_union_and_intersection_of_two_automata(first, second):
    parts = [to_restricted(first), to_restricted(second)]
    joint = union(parts)
    languages = [language_of_pda(p, ALPHABET, 4) for p in parts]
    assert language_of_pda(joint.pda, ALPHABET, 4) == languages[0] | languages[1]
    for accept, language in zip(joint.parts, languages, strict=True):
        alone = RestrictedPDA(joint.pda.transitions, joint.pda.start, accept)
        assert language_of_pda(alone, ALPHABET, 4) == language


@given(restricted_wpdas(), restricted_wpdas())
@settings(max_examples=40)
def test_weights_of_a_union_add_up(first, second):
    joint = union([first, second]).pda
    for word in all_words(ALPHABET, 3)[1:]:
        expected = stringsum(first, word) + stringsum(second, word)
        assert stringsum(joint, word) == pytest.approx(expected, rel=1e-12)


def test_union_of_automata_with_different_bottom_symbols():
    pda = unmarked_reversal_pda()
    names = {BOTTOM: "0", "0": BOTTOM}

    def rename(stack):
        return tuple(names.get(x, x) for x in stack)

    renamed = RestrictedWPDA(
        tuple(Transition(t.state, t.read, rename(t.pop), t.target, rename(t.push)) for t in pda.transitions),
        "q1", pda.accept, bottom="0",
    )  # fmt: skip
    assert accepts(renamed, "0110")
    assert language_of_pda(union([renamed]).pda, "01", 5) == language_of_pda(pda, "01", 5)


def test_union_of_nothing_is_an_error():
    with pytest.raises(AutomatonError, match="at least one"):
        union([])


def geometric(weight):
    """a^n with weight^n, one run each."""
    loop = Transition("q", "a", (BOTTOM,), "q", (BOTTOM,), weight)
    return RestrictedWPDA((loop,), "q", frozenset({"q"}))


def test_allsum_in_closed_form():
    assert allsum(geometric(0.75)) == pytest.approx(4, rel=1e-13)
    assert math.exp(log_probability(geometric(0.75), "aa")) == pytest.approx(0.75**2 / 4, rel=1e-12)


def test_allsum_of_unmarked_reversal_in_closed_form():
    """2^n strings of weight p^{2n} each."""
    pda = unmarked_reversal_pda()
    scaled = RestrictedWPDA(
        tuple(Transition(t.state, t.read, t.pop, t.target, t.push, 0.2) for t in pda.transitions),
        pda.start, pda.accept,
    )  # fmt: skip
    assert allsum(scaled) == pytest.approx(1 / (1 - 2 * 0.04), rel=1e-13)


@pytest.mark.parametrize("weight", [1.0, 1.5])
def test_divergent_allsum_is_an_error(weight):
    with pytest.raises(DivergenceError, match="is infinite"):
        allsum(geometric(weight))


@given(restricted_wpdas())
@settings(max_examples=60)
def test_allsum_is_the_sum_of_stringsums(pda):
    scaled = RestrictedWPDA(
        tuple(Transition(t.state, t.read, t.pop, t.target, t.push, min(t.weight, 1.0) / 40)
              for t in pda.transitions), pda.start, pda.accept)  # fmt: skip
    total = allsum(scaled)
    assume(total > 0)
    enumerated = math.fsum(run.weight for w in all_words(ALPHABET, 5) for run in accepting_runs(scaled, w))
    assert enumerated <= total * (1 + 1e-12)
    assert total == pytest.approx(enumerated, rel=0.02)
    log_sum = math.fsum(math.exp(log_probability(scaled, w)) for w in all_words(ALPHABET, 3))
    assert log_sum <= 1 + 1e-12


def test_probability_of_a_general_pda_with_silent_transitions():
    """Push one or two c's silently for each a; pop one for each b."""
    pda = WeightedPDA(
        (
            Transition("p", "a", (), "p", ("c",), 0.2),
            Transition("p", "a", (), "p", ("c", "c"), 0.1),
            Transition("p", "", (), "q", (), 0.5),
            Transition("q", "b", ("c",), "q", (), 0.5),
        ),
        "p",
        frozenset({"q"}),
    )
    total = sum(r.weight for n in range(9) for m in range(17) for r in accepting_runs(pda, "a" * n + "b" * m))
    assert allsum(pda) == pytest.approx(total, rel=1e-4)
    weight = sum(r.weight for r in accepting_runs(pda, "ab"))
    assert math.exp(log_probability(pda, "ab")) == pytest.approx(weight / allsum(pda), rel=1e-12)


def test_an_automaton_that_accepts_nothing_sums_to_zero():
    assert allsum(RestrictedWPDA((), "q", frozenset())) == 0


def test_a_plain_pda_defines_no_distribution():
    plain = PDA((Transition("q", "a", (), "q", ()),), "q", frozenset({"q"}))
    for function in (allsum, lambda p: log_probability(p, "a")):
        with pytest.raises(AutomatonError, match="no weights"):
            function(plain)


def test_union_of_compiled_grammars():
    joint = union([to_restricted(CFG.fromstring(t)) for t in ("S -> 'a' S 'b' |", "S -> 'a' S | 'b' S |")])
    assert accepts(joint.pda, "aab")
    in_both = [all(accepts(RestrictedPDA(joint.pda.transitions, "s", p), w) for p in joint.parts)
               for w in ("ab", "aab", "")]  # fmt: skip
    assert in_both == [True, False, True]


def test_a_state_called_start_is_no_other_parts_start():
    """The start state is entered again, so it gets a twin, whose name may be taken."""
    moves = [("q", "a", "start"), ("start", "b", "q")]
    transitions = tuple(Transition(q, a, (BOTTOM,), r, (BOTTOM,)) for q, a, r in moves)
    pda = RestrictedPDA(transitions, "q", frozenset({"q"}))
    joint = union([pda, pda]).pda
    assert language_of_pda(joint, "ab", 4) == {(), ("a", "b"), ("a", "b") * 2}
