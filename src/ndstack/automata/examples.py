"""Automata from the dissertation, to try things on."""

from ndstack.automata.pda import BOTTOM, RestrictedWPDA, Transition


def unmarked_reversal_pda() -> RestrictedWPDA:
    """Return the restricted WPDA of section 4.5 for { ww^R | w over 0, 1 }, all weights 1.

    In q1 it pushes what it reads; at any time it may guess the middle and go to q2, in which it pops.
    """
    push = [Transition("q1", a, (x,), "q1", (x, a)) for x in (BOTTOM, "0", "1") for a in "01"]
    pop = [Transition(q, a, (a,), "q2", ()) for q in ("q1", "q2") for a in "01"]
    return RestrictedWPDA((*push, *pop), "q1", frozenset({"q1", "q2"}))
