"""Differentiable stacks behind one interface (`ndstack.stacks.base`).

A stack of your own is a subclass of `Stack` (docs/stacks.md); `ndstack.register.stack` gives it a name, with
which it can be trained, saved and swept (docs/networks.md).
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
