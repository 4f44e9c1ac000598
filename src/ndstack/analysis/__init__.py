"""Analysis of stacks while a model reads a string: runs, posteriors, readings, attention, and pictures."""

from ndstack.analysis.stack_run import Element, Move, Names, StackConfiguration, StackRun
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.stack_wfa import (
    StackProbability,
    StackWFAMarginals,
    most_probable_stacks,
    stack_wfa_marginals,
)
from ndstack.analysis.trace import Trace, trace
from ndstack.analysis.transition_weights import Posterior, TransitionWeights

__all__ = [
    "Element",
    "Move",
    "Names",
    "Posterior",
    "StackConfiguration",
    "StackProbability",
    "StackRun",
    "StackRuns",
    "StackTrace",
    "StackWFAMarginals",
    "Trace",
    "TransitionWeights",
    "most_probable_stacks",
    "stack_wfa_marginals",
    "trace",
]
