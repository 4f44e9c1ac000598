"""Differentiable stacks behind one interface (`ndstack.stacks.base`)."""

from ndstack.kernels.lstm import LSTMWeights
from ndstack.stacks.base import PushActivation, Stack, State
from ndstack.stacks.several import Several, SeveralState
from ndstack.stacks.stratification import Stratification, StratificationState
from ndstack.stacks.superposition import Superposition, SuperpositionState

__all__ = [
    "LSTMWeights",
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
