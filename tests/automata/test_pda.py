import math

import pytest

from ndstack.automata import (
    BOTTOM,
    PDA,
    BottomMarkedPDA,
    RestrictedPDA,
    RestrictedWPDA,
    Transition,
    WeightedPDA,
    accepting_runs,
    runs,
)
from ndstack.errors import AutomatonError


def test_parts_are_what_occurs():
    pda = PDA((Transition("q", "a", ("x",), "r", ("y", "z")),), "q", frozenset({"f"}))
    assert pda.states == ("q", "r", "f")
    assert pda.input_alphabet == ("a",)
    assert pda.stack_alphabet == ("x", "y", "z")
    assert RestrictedPDA((), "q", frozenset()).stack_alphabet == (BOTTOM,)


def test_equal_transitions_are_merged_and_weight_zero_is_absence():
    t = Transition("q", "a", ("x",), "q", (), 0.5)
    pda = WeightedPDA((t, t, Transition("q", "b", (), "q", (), 0.0)), "q", frozenset({"q"}))
    assert pda.transitions == (Transition("q", "a", ("x",), "q", (), 1.0),)
    plain = Transition("q", "a", (), "q", ())
    assert PDA((plain, plain), "q", frozenset()).transitions == (plain,)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_bad_weights_are_refused(weight):
    with pytest.raises(AutomatonError, match=r"q, x --a/.*--> q, ε has weight"):
        WeightedPDA((Transition("q", "a", ("x",), "q", (), weight),), "q", frozenset())


def test_plain_automata_refuse_weights():
    with pytest.raises(AutomatonError, match="PDA has none; use the weighted class"):
        PDA((Transition("q", "a", (), "q", (), 0.5),), "q", frozenset())


def test_stack_strings_are_tuples():
    with pytest.raises(AutomatonError, match="'xy' is not a tuple of stack symbols"):
        PDA((Transition("q", "a", (), "q", "xy"),), "q", frozenset())


@pytest.mark.parametrize(
    "pop, push, action",
    [
        (("x",), ("x", "y"), "push"),
        (("x",), ("y",), "replace"),
        (("x",), (), "pop"),
        (("x",), ("y", "x"), "other"),
        (("x",), ("x", "y", "y"), "other"),
        (("x", "y"), (), "other"),
        ((), ("x",), "other"),
    ],
)
def test_restricted_automata_push_replace_or_pop_one_symbol(pop, push, action):
    transition = Transition("q", "a", pop, "q", push)
    assert transition.action == action
    if action == "other":
        with pytest.raises(AutomatonError, match=r"is not of the form x → xy \(push\)"):
            RestrictedPDA((transition,), "q", frozenset())
    else:
        assert RestrictedPDA((transition,), "q", frozenset()).transitions == (transition,)


def test_restricted_automata_read_a_symbol_a_step():
    with pytest.raises(AutomatonError, match="reads nothing"):
        RestrictedPDA((Transition("q", "", ("x",), "q", ()),), "q", frozenset())


def test_probabilistic_automata_are_recognised():
    half = [Transition("q", "a", (BOTTOM,), "q", push, 0.5) for push in ((BOTTOM, BOTTOM), (BOTTOM,))]
    assert RestrictedWPDA(tuple(half), "q", frozenset()).is_probabilistic()
    assert not RestrictedWPDA(tuple(half[:1]), "q", frozenset()).is_probabilistic()
    more = Transition("q", "a", ("x",), "q", (), 0.5)
    assert not RestrictedWPDA((*half, more), "q", frozenset()).is_probabilistic()


def test_runs_by_hand():
    """a^n b^n with the general kind: starts empty, pushes a counter, accepts in any stack in r."""
    push = Transition("q", "a", (), "q", ("c",))
    switch = Transition("q", "", (), "r", ())
    pop = Transition("r", "b", ("c",), "r", ())
    pda = PDA((push, switch, pop), "q", frozenset({"r"}))
    found = list(accepting_runs(pda, "aab"))
    assert [run.transitions for run in found] == [(push, push, switch, pop)]
    assert [c.stack for c in found[0].configurations] == [(), ("c",), ("c", "c"), ("c", "c"), ("c",)]
    assert not list(accepting_runs(pda, "ba"))


def test_runs_without_reading_are_bounded():
    loop = Transition("q", "", (), "q", ("x",))
    pda = PDA((loop,), "q", frozenset({"q"}))
    assert len(list(runs(pda, "", max_steps=3))) == 4
    assert len(list(runs(pda, ""))) == 5


def test_pop_takes_the_top_in_bottom_to_top_order():
    setup = Transition("q", "a", (), "q", ("x", "y"))
    right, wrong = Transition("q", "b", ("x", "y"), "r", ()), Transition("q", "b", ("y", "x"), "r", ())
    assert list(accepting_runs(PDA((setup, right), "q", frozenset("r")), "ab"))
    assert not list(accepting_runs(PDA((setup, wrong), "q", frozenset("r")), "ab"))


def test_names_are_checked():
    with pytest.raises(AutomatonError, match="expected a set of states"):
        PDA((), "q1", "q1")
    with pytest.raises(AutomatonError, match="is not a tuple of stack symbols"):
        PDA((Transition("q", "a", ("",), "q", ()),), "q", frozenset())


def test_bottom_marked_automata_accept_with_the_bottom_on_top():
    push = Transition("q", "a", (BOTTOM,), "q", (BOTTOM, "x"))
    pop = Transition("q", "b", ("x",), "q", ())
    pda = BottomMarkedPDA((push, pop), "q", frozenset({"q"}))
    assert [bool(list(accepting_runs(pda, w))) for w in ("", "a", "ab", "b")] == [True, False, True, False]


def test_weight_of_a_run_is_the_product():
    t = Transition("q", "a", (), "q", (), 0.25)
    run = next(accepting_runs(WeightedPDA((t,), "q", frozenset({"q"})), "aa"))
    assert run.weight == 0.0625
