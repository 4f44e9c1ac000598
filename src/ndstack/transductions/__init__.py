"""Functions from strings to strings, exact and seeded, and data sets of pairs of strings.

| module | content |
|---|---|
| `benchmark`, `arithmetic` | the fifteen tasks of the Chomsky-hierarchy benchmark (Delétang et al., 2023) |
| `english` | question formation and tense reinflection (after McCoy et al., 2020) |
| `pairs` | data sets, sampled or read from tab-separated files |
| `scores` | accuracy per symbol, by length and overall |
"""

from ndstack.transductions.chomsky_hierarchy import TASKS, TEST_LENGTHS, TRAIN_LENGTHS
from ndstack.transductions.english import EnglishTransduction
from ndstack.transductions.pairs import PairData, make_pairs, read_pairs, write_pairs
from ndstack.transductions.registry import DESCRIPTIONS, NAMES, get
from ndstack.transductions.scores import Agreement, agree, by_length, score
from ndstack.transductions.transduction import Pair, Transduction

__all__ = [
    "DESCRIPTIONS",
    "NAMES",
    "TASKS",
    "TEST_LENGTHS",
    "TRAIN_LENGTHS",
    "Agreement",
    "EnglishTransduction",
    "Pair",
    "PairData",
    "Transduction",
    "agree",
    "by_length",
    "get",
    "make_pairs",
    "read_pairs",
    "score",
    "write_pairs",
]
