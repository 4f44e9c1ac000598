"""Context-free grammars: notation, normal forms, inside weights, sampling by length, parses."""

from ndstack.grammars.binary import uniform
from ndstack.grammars.fixed_point import allsum, allsums, is_consistent, null_weights
from ndstack.grammars.forest import best_parse, best_parses, count_parses, parses
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule, Symbol, WeightedCFG, Word
from ndstack.grammars.greibach import greibach, is_greibach, is_two_greibach, two_greibach
from ndstack.grammars.hardest import encode, homomorphism, in_hardest
from ndstack.grammars.inside import generates, log_inside
from ndstack.grammars.lengths import LengthTable
from ndstack.grammars.notation import read_grammar
from ndstack.grammars.removal import proper, remove_epsilon, remove_unary

__all__ = [
    "CFG",
    "PCFG",
    "LengthTable",
    "Nonterminal",
    "Rule",
    "Symbol",
    "WeightedCFG",
    "Word",
    "allsum",
    "allsums",
    "best_parse",
    "best_parses",
    "count_parses",
    "encode",
    "generates",
    "greibach",
    "homomorphism",
    "in_hardest",
    "is_consistent",
    "is_greibach",
    "is_two_greibach",
    "log_inside",
    "null_weights",
    "parses",
    "proper",
    "read_grammar",
    "remove_epsilon",
    "remove_unary",
    "two_greibach",
    "uniform",
]
