"""Engines, which run trials: in this process, in processes of this machine, or on a cluster."""

from ndstack.experiments.engines.base import Engine, Inline, Lost
from ndstack.experiments.engines.local import Local

__all__ = ["Engine", "Inline", "Local", "Lost"]
