"""The `ndstack` command. Each subcommand is a few lines that call the library and show the result.

A module here is a group of commands. Heavy imports are inside the commands, so that `--help` is quick.
"""

from ndstack.cli import (  # noqa: F401 - an imported module registers its commands
    analysis,
    automata,
    demonstration,
    experiments,
    languages,
    runs,
    text,
    text_scores,
    training,
    trees,
)
from ndstack.cli.app import app, main

__all__ = ["app", "main"]
