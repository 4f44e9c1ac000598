"""Differentiable stacks behind one interface (`ndstack.stacks.base`).

A stack of your own is a subclass of `Stack`; docs/stacks.md shows one, and how to register it.
"""

from ndstack.stacks.base import PushActivation, Stack, State
from ndstack.stacks.nondeterministic import Nondeterministic, NondeterministicState
from ndstack.stacks.several import Several, SeveralState
from ndstack.stacks.stratification import Stratification, StratificationState
from ndstack.stacks.superposition import Superposition, SuperpositionState

__all__ = [
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
