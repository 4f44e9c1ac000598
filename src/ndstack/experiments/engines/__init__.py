"""Where trials are run: in processes of this machine, or on a cluster."""

from ndstack.experiments.engines.base import Engine, Lost
from ndstack.experiments.engines.inline import Inline
from ndstack.experiments.engines.local import Local

__all__ = ["Engine", "Inline", "Local", "Lost"]
