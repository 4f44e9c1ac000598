"""Lang's algorithm against the enumeration of all runs, in every semiring."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings

from ndstack.automata import (
    ROOT,
    Lang,
    Node,
    RestrictedPDA,
    Transition,
    accepting_runs,
    accepts,
    best_run,
    log_stringsum,
    replay,
    runs,
    stringsum,
    unmarked_reversal_pda,
)
from ndstack.errors import AutomatonError
from ndstack.semirings import BOOLEAN, COUNTING, LOG, REAL, VITERBI
from tests.oracles import all_words
from tests.strategies import ALPHABET, restricted_wpdas

WORDS = all_words(ALPHABET, 4)


def test_semirings_add_and_multiply_many_values():
    weights = [0.5, 0.25, 0.125]
    assert REAL.sum(weights) == 0.875
    assert REAL.product(weights) == 2**-6
    assert COUNTING.sum([]) == 0
    assert COUNTING.product([]) == 1
    labelled = [VITERBI.lift(weight, label) for weight, label in zip(weights, "abc", strict=True)]
    assert VITERBI.product(labelled).labels() == ("a", "b", "c")
    assert VITERBI.sum(labelled).labels() == ("a",)
    assert VITERBI.product([*labelled, VITERBI.zero]) == VITERBI.zero
    assert repr(VITERBI) == "<Viterbi semiring>"


def close(expected):
    return pytest.approx(expected, rel=1e-12, abs=0)


@given(restricted_wpdas())
@settings(max_examples=100)
def test_every_semiring_equals_the_enumeration_of_runs(pda):
    for word in WORDS:
        found = [run.weight for run in accepting_runs(pda, word)]
        assert Lang(pda, BOOLEAN, word).stringsum() == bool(found)
        assert Lang(pda, COUNTING, word).stringsum() == len(found)
        assert Lang(pda, REAL, word).stringsum() == close(math.fsum(found))
        log = Lang(pda, LOG, word).stringsum()
        best = Lang(pda, VITERBI, word).stringsum()
        if not found:
            assert log == best.log_weight == -math.inf
        else:
            assert log == pytest.approx(math.log(math.fsum(found)), abs=1e-11)
            assert best.log_weight == pytest.approx(math.log(max(found)), abs=1e-11)
            moves: list[Transition] = best.labels()
            assert math.prod(move.weight for move in moves) == close(max(found))


@given(restricted_wpdas())
def test_best_run_is_an_accepting_run_of_greatest_weight(pda):
    for word in WORDS:
        found = list(accepting_runs(pda, word))
        if not found:
            with pytest.raises(AutomatonError, match="no best run"):
                best_run(pda, word)
            continue
        run = best_run(pda, word)
        assert run in found
        assert run.weight == close(max(r.weight for r in found))


@given(restricted_wpdas())
@settings(max_examples=100)
def test_forward_weights_and_stacks_equal_the_enumeration_of_runs(pda):
    for word in WORDS:
        forward, stacks = Counter(), Counter()
        for run in runs(pda, word):
            if run.last.stack:
                forward[run.last.state, run.last.stack[-1]] += run.weight
                stacks[run.last.state, run.last.stack] += run.weight
        lang = Lang(pda, REAL, word)
        assert lang.forward(len(word)) == {key: close(w) for key, w in forward.items()}
        assert lang.stack_wfa().stacks() == {key: close(w) for key, w in stacks.items()}


@given(restricted_wpdas())
@settings(max_examples=60)
def test_inner_weights_are_those_of_push_computations(pda):
    """γ[(i,q,x) → (t,r,y)]: partial runs from (i, q, βx) to (t, r, βxy) that never expose the x."""
    for word in WORDS[15:23]:
        inner = Counter()
        for run in runs(pda, word):
            t = len(word)
            end = run.last
            for i in range(t):
                start = run.configurations[i]
                height = len(start.stack)
                between = run.configurations[i + 1 :]
                if height and len(end.stack) == height + 1 and all(len(c.stack) > height for c in between):
                    prefix = math.prod(x.weight for x in run.transitions[:i])
                    key = (Node(i, start.state, start.stack[-1]), Node(t, end.state, end.stack[-1]))
                    inner[key] += run.weight / prefix
        lang = Lang(pda, REAL, word)
        tails = _ways_to(pda, word)
        for (origin, node), weight in inner.items():
            # each partial run was found once for every way to reach its beginning
            assert lang.inner(origin, node) == close(weight / tails[origin])


def _ways_to(pda, word):
    """How many runs end in each configuration type at each time."""
    ways = Counter()
    for t in range(len(word) + 1):
        for run in runs(pda, word[:t]):
            if run.last.stack:
                ways[Node(t, run.last.state, run.last.stack[-1])] += 1
    return ways


def test_reading_symbol_by_symbol_is_reading_at_once():
    pda = unmarked_reversal_pda()
    lang = Lang(pda, REAL)
    for t, symbol in enumerate("0110"):
        assert lang.time == t
        lang.read(symbol)
    whole = Lang(pda, REAL, "0110")
    assert [lang.forward(t) for t in range(5)] == [whole.forward(t) for t in range(5)]
    assert lang.stack_wfa(2) == Lang(pda, REAL, "01").stack_wfa()


def test_example_run_of_section_4_5_state_by_state():
    """Figure 4.2: the stack WFA on 0110, every state, edge and accept state for t = 0..4."""
    lang = Lang(unmarked_reversal_pda(), REAL, "0110")
    a, b, c, d = Node(0, "q1", "⊥"), Node(1, "q1", "0"), Node(2, "q1", "1"), Node(3, "q1", "1")
    e, f, g = Node(3, "q2", "0"), Node(4, "q1", "0"), Node(4, "q2", "⊥")
    new_edges = [
        {(ROOT, "⊥", a)},
        {(a, "0", b)},
        {(b, "1", c)},
        {(c, "1", d), (a, "0", e)},
        {(d, "0", f), (ROOT, "⊥", g)},
    ]
    accept = [{a}, {b}, {c}, {d, e}, {f, g}]
    edges: set = set()
    for t in range(5):
        edges |= new_edges[t]
        wfa = lang.stack_wfa(t)
        assert {(x.source, x.symbol, x.target) for x in wfa.edges} == edges
        assert {x.weight for x in wfa.edges} == {1.0}
        assert wfa.accept == accept[t]
        assert set(wfa.states) == {ROOT} | {target for _, _, target in edges}
    assert [t.action for t in best_run(lang.pda, "0110").transitions] == ["push", "push", "pop", "pop"]


def test_example_automaton_recognises_unmarked_reversal():
    pda = unmarked_reversal_pda()
    for word in all_words("01", 8):
        assert accepts(pda, word) == (len(word) % 2 == 0 and word == word[::-1])


def test_trimmed_wfa_keeps_the_stacks_and_drops_what_no_stack_uses():
    wfa = Lang(unmarked_reversal_pda(), REAL, "0110").stack_wfa()
    assert Node(3, "q2", "0") in wfa.states
    assert Node(3, "q2", "0") not in wfa.trimmed().states
    assert (
        wfa.trimmed().stacks()
        == wfa.stacks()
        == {
            ("q1", ("⊥", "0", "1", "1", "0")): 1.0,
            ("q2", ("⊥",)): 1.0,
        }
    )


def test_the_initial_bottom_can_be_replaced_and_a_popped_one_ends_the_run():
    replace = Transition("q", "a", ("⊥",), "q", ("x",))
    back = Transition("q", "a", ("x",), "q", ("⊥",))
    pop = Transition("q", "b", ("⊥",), "q", ())
    pda = RestrictedPDA((replace, back, pop), "q", frozenset({"q"}))
    assert [accepts(pda, w) for w in ("", "a", "aa", "b", "ab", "aab")] == [True, False, True] + [False] * 3
    assert Lang(pda, COUNTING, "b").forward(1) == {}


def test_log_stringsum_survives_where_the_real_one_underflows():
    t = Transition("q", "a", ("⊥",), "q", ("⊥",), 1e-3)
    pda = type(unmarked_reversal_pda())((t,), "q", frozenset({"q"}))
    assert stringsum(pda, "a" * 200) == 0.0
    assert log_stringsum(pda, "a" * 200) == pytest.approx(200 * math.log(1e-3))


def test_replay_refuses_transitions_that_do_not_fit():
    pda = unmarked_reversal_pda()
    with pytest.raises(AutomatonError, match="cannot follow"):
        replay(pda, [t for t in pda.transitions if t.action == "pop"][:1])


def test_times_outside_what_was_read_are_errors():
    with pytest.raises(AutomatonError, match=r"time 3 is not in 0\.\.2"):
        Lang(unmarked_reversal_pda(), REAL, "01").stack_wfa(3)
