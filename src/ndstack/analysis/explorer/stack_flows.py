"""How the most probable stacks fork and merge from one step to the next."""

import math
from collections.abc import Sequence

from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.stack_wfa import StackProbability
from ndstack.analysis.transition_weights import TransitionWeights

Flow = tuple[int, int, float]
"""The number of a stack before a step, that of a stack after it, and the probability of both."""


def flows(
    runs: StackRuns, time: int, before: Sequence[StackProbability], after: Sequence[StackProbability]
) -> list[Flow]:
    """Return the probability of each pair of a stack before step `time` and a stack after it.

    At most one transition leads from one stack to another, so the probability of both, among the runs to time
    t, is p(β) weight(β -> β') Z(t-1) / Z(t). This holds for whole stacks only, and not with a window, which
    discards runs depending on when their symbols were pushed.
    """
    if runs.weights.window is not None:
        return []
    scale = runs.at(time - 1).log_weight - runs.at(time).log_weight
    found = []
    for i, old in enumerate(before):
        for j, new in enumerate(after):
            if old.whole and new.whole:
                log = _log_transition(runs.weights, time - 1, old, new)
                if log > -math.inf:
                    found.append((i, j, old.probability * math.exp(log + scale)))
    return found


def _log_transition(
    weights: TransitionWeights, step: int, old: StackProbability, new: StackProbability
) -> float:
    """Return the log weight of the transition from one stack to another, which is -inf if there is none."""
    rest, top = old.stack[:-1], old.stack[-1]
    if new.stack == rest:
        return float(weights.pop[step, old.state, top, new.state])
    if new.stack[:-1] == rest:
        return float(weights.replace[step, old.state, top, new.state, new.stack[-1]])
    if new.stack[:-1] == old.stack:
        return float(weights.push[step, old.state, top, new.state, new.stack[-1]])
    return -math.inf
