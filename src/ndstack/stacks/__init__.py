"""Differentiable stacks behind one interface (`ndstack.stacks.base`)."""

import importlib
from typing import TYPE_CHECKING, Any

from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.stacks.base import PushActivation, Stack, State
from ndstack.stacks.several import Several, SeveralState
from ndstack.stacks.stratification import Stratification, StratificationState
from ndstack.stacks.superposition import Superposition, SuperpositionState

if TYPE_CHECKING:
    from ndstack.stacks.nondeterministic import Nondeterministic, NondeterministicState

__all__ = [
    "LSTMWeights",
    "Nondeterministic",
    "NondeterministicState",
    "PushActivation",
    "Several",
    "SeveralState",
    "Stack",
    "State",
    "Stratification",
    "StratificationState",
    "Superposition",
    "SuperpositionState",
]


def __getattr__(name: str) -> Any:
    """Load the nondeterministic stack, which brings the compiler along, when first asked for."""
    if name in ("Nondeterministic", "NondeterministicState"):
        return getattr(importlib.import_module("ndstack.stacks.nondeterministic"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
