"""Sums over all strings: the allsum of a weighted PDA and the distribution it defines (chapter 2)."""

import math
from collections.abc import Sequence

from ndstack.automata.pda import PDA
from ndstack.automata.triple_construction import find_grammar, to_grammar
from ndstack.errors import AutomatonError
from ndstack.grammars.fixed_point import total_weight
from ndstack.grammars.inside import log_inside


def allsum(pda: PDA) -> float:
    """Return ψ(P), the total weight of all accepting runs on all strings.

    It is computed on the grammar of the automaton, as the least fixed point of its equations, to a relative
    tolerance of 1e-14 (to half the digits at the limit of convergence). If it is infinite, a
    `DivergenceError` is raised.
    """
    _check_weighted(pda)
    grammar = find_grammar(pda)
    return 0.0 if grammar is None else total_weight(grammar)


def log_probability(pda: PDA, word: Sequence[str]) -> float:
    """Return log p(w) with p(w) = ψ(P, w) / ψ(P), for any weighted PDA, with or without ε-transitions."""
    _check_weighted(pda)
    grammar = to_grammar(pda)
    return log_inside(grammar, word) - math.log(total_weight(grammar))


def _check_weighted(pda: PDA) -> None:
    if not pda.weighted:
        raise AutomatonError("the automaton has no weights and defines no distribution; use a weighted PDA")
