"""The page that shows the stacks of a model while it reads: its server, its static site, and a notebook."""

from ndstack.analysis.explorer.inline import Exploration, explore

__all__ = ["Exploration", "explore"]
