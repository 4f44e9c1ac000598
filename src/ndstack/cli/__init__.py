"""The `ndstack` command. Each subcommand is a few lines that call the library and show the result.

A module here is a group of commands. Heavy imports happen inside the commands, so that `--help` is quick.
"""

from ndstack.cli import (
    analysis,
    automata,
    demonstration,
    experiments,
    explore,
    languages,
    ledger,
    runs,
    text,
    text_scores,
    training,
    trees,
    zoo,
)
from ndstack.cli.app import app, main

__all__ = [
    "analysis",
    "app",
    "automata",
    "demonstration",
    "experiments",
    "explore",
    "languages",
    "ledger",
    "main",
    "runs",
    "text",
    "text_scores",
    "training",
    "trees",
    "zoo",
]
