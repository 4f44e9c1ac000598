"""Formal languages with exact sampling, exact probabilities and lower bounds, and their data sets."""

from ndstack.languages.context_free import ContextFreeLanguage, from_grammar
from ndstack.languages.datasets import Dataset, make_dataset, read_dataset, write_dataset
from ndstack.languages.language import Language
from ndstack.languages.non_context_free import PatternLanguage
from ndstack.languages.registry import DESCRIPTIONS, NAMES, get
from ndstack.settings.data import Plan

__all__ = [
    "DESCRIPTIONS",
    "NAMES",
    "ContextFreeLanguage",
    "Dataset",
    "Language",
    "PatternLanguage",
    "Plan",
    "from_grammar",
    "get",
    "make_dataset",
    "read_dataset",
    "write_dataset",
]
