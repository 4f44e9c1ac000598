"""What a stack does while it reads: runs, posteriors, readings, attention, and pictures of them."""

from ndstack.analysis.run import Configuration, Element, Move, Names, Run
from ndstack.analysis.runs import Runs
from ndstack.analysis.stack_graph import StackGraph, StackProbability, most_probable_stacks, stack_graph
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.trace import Trace, trace
from ndstack.analysis.weights import Posterior, Weights

__all__ = [
    "Configuration",
    "Element",
    "Move",
    "Names",
    "Posterior",
    "Run",
    "Runs",
    "StackGraph",
    "StackProbability",
    "StackTrace",
    "Trace",
    "Weights",
    "most_probable_stacks",
    "stack_graph",
    "trace",
]
