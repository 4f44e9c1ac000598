"""The `ndstack` command. Each subcommand is a few lines that call the library and show the result.

A module here is a group of commands. Heavy imports are inside the commands, so that `--help` is quick.

| module | commands |
|---|---|
| `languages` | languages, sample, probability, dataset |
| `transductions` | transductions, transduce |
| `automata` | recognize, automaton, grammar |
| `trees` | trees |
| `training`, `runs` | train; evaluate, generate, show, compare |
| `hugging_face` | hf export, hf import |
| `analysis` | parse, draw, explore |
| `experiments` | reproduce, sweep, report, gather, claims, zoo |
| `text`, `text_pairs`, `text_scores` | text prepare, train, ...; prepare-pairs, bleu; surprisal, sg, ... |
| `demonstration` | demo, compile, bench |
"""

from ndstack.cli import (  # noqa: F401 - an imported module registers its commands
    analysis,
    automata,
    demonstration,
    experiments,
    hugging_face,
    languages,
    runs,
    text,
    text_pairs,
    text_scores,
    training,
    transductions,
    trees,
)
from ndstack.cli.app import app, main

__all__ = ["app", "main"]
