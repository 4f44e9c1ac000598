"""Pushdown automata: run enumeration, conversions, Lang's algorithm, the stack WFA, sums."""

from ndstack.automata.conversion import bottom_marked, restrict, to_restricted
from ndstack.automata.lang import (
    Lang,
    accepts,
    best_run,
    log_stringsum,
    replay,
    stringsum,
)
from ndstack.automata.pda import (
    BOTTOM,
    PDA,
    BottomMarkedPDA,
    RestrictedPDA,
    RestrictedWPDA,
    Transition,
    WeightedBottomMarkedPDA,
    WeightedPDA,
)
from ndstack.automata.runs import Configuration, Run, accepting_runs, runs
from ndstack.automata.stack_wfa import ROOT, Edge, Node, StackWFA
from ndstack.automata.sums import allsum, log_probability
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triples import to_grammar
from ndstack.automata.union import Union, union

__all__ = [
    "BOTTOM",
    "PDA",
    "ROOT",
    "BottomMarkedPDA",
    "Configuration",
    "Edge",
    "Lang",
    "Node",
    "RestrictedPDA",
    "RestrictedWPDA",
    "Run",
    "StackWFA",
    "Transition",
    "Union",
    "WeightedBottomMarkedPDA",
    "WeightedPDA",
    "accepting_runs",
    "accepts",
    "allsum",
    "best_run",
    "bottom_marked",
    "log_probability",
    "log_stringsum",
    "replay",
    "restrict",
    "runs",
    "stringsum",
    "to_grammar",
    "to_restricted",
    "trim_restricted",
    "union",
]
