"""The Viterbi run: the accepting run of greatest weight, by Lang's algorithm over the Viterbi semiring."""

import math
from collections.abc import Sequence
from typing import cast

from ndstack.automata.langs_algorithm import Lang
from ndstack.automata.pda import RestrictedPDA, Transition
from ndstack.automata.runs import Configuration, PDARun
from ndstack.errors import AutomatonError
from ndstack.semirings import VITERBI


def best_run(pda: RestrictedPDA, word: Sequence[str]) -> PDARun:
    """Return the accepting run of greatest weight."""
    best = Lang(pda, VITERBI, word).stringsum()
    if best.log_weight == -math.inf:
        raise AutomatonError(f"the automaton does not accept {word!r}, so it has no best run")
    return replay(pda, cast(tuple[Transition, ...], best.labels()))


def replay(pda: RestrictedPDA, transitions: Sequence[Transition]) -> PDARun:
    """Return the run that takes these transitions."""
    current = Configuration(0, pda.start, pda.initial_stack)
    configurations = [current]
    for t in transitions:
        if current.state != t.state or current.stack[-1:] != t.pop:
            raise AutomatonError(f"transition {t} cannot follow configuration {current}")
        current = Configuration(current.position + 1, t.target, current.stack[:-1] + t.push)
        configurations.append(current)
    return PDARun(tuple(transitions), tuple(configurations))
