"""Context-free grammars: notation, normal forms, inside weights, sampling by length, parses."""

from ndstack.grammars.binarization import uniform
from ndstack.grammars.epsilon_unary_removal import proper, remove_epsilon, remove_unary
from ndstack.grammars.fixed_point import is_consistent, null_weights, total_weight, total_weights
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule, Symbol, WeightedCFG, Word
from ndstack.grammars.greibach import greibach, is_greibach, is_two_greibach, two_greibach
from ndstack.grammars.hardest_cfl import hardest_cfl_encoding, hardest_cfl_homomorphism, in_hardest_cfl
from ndstack.grammars.inside import generates, log_inside
from ndstack.grammars.length_sampling import LengthTable
from ndstack.grammars.notation import read_grammar
from ndstack.grammars.parse_forest import best_parse, best_parses, count_parses, parses

__all__ = [
    "CFG",
    "PCFG",
    "LengthTable",
    "Nonterminal",
    "Rule",
    "Symbol",
    "WeightedCFG",
    "Word",
    "best_parse",
    "best_parses",
    "count_parses",
    "generates",
    "greibach",
    "hardest_cfl_encoding",
    "hardest_cfl_homomorphism",
    "in_hardest_cfl",
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
    "total_weight",
    "total_weights",
    "two_greibach",
    "uniform",
]
