"""Pushdown automata: conversions, enumeration of runs, Lang's algorithm, the stack WFA, the allsum."""

from ndstack.automata.allsums import allsum, log_probability
from ndstack.automata.conversion import bottom_marked, restrict, to_restricted
from ndstack.automata.examples import unmarked_reversal_pda
from ndstack.automata.langs_algorithm import Lang, accepts, log_stringsum, stringsum
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
from ndstack.automata.runs import Configuration, PDARun, accepting_runs, best_run, replay, runs
from ndstack.automata.stack_wfa import ROOT, Edge, Node, StackWFA
from ndstack.automata.stack_wfa_drawing import run_svg, stack_wfa_svg
from ndstack.automata.trimming import trim_restricted
from ndstack.automata.triple_construction import to_grammar
from ndstack.automata.union import UnionPDA, union

__all__ = [
    "BOTTOM",
    "PDA",
    "ROOT",
    "BottomMarkedPDA",
    "Configuration",
    "Edge",
    "Lang",
    "Node",
    "PDARun",
    "RestrictedPDA",
    "RestrictedWPDA",
    "StackWFA",
    "Transition",
    "UnionPDA",
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
    "run_svg",
    "runs",
    "stack_wfa_svg",
    "stringsum",
    "to_grammar",
    "to_restricted",
    "trim_restricted",
    "union",
    "unmarked_reversal_pda",
]
