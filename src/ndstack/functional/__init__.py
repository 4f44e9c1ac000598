"""Differentiable stacks as pure functions over whole sequences, batch first."""

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.functional.stratification import stratification
from ndstack.functional.superposition import superposition

__all__ = ["nondeterministic", "stratification", "superposition"]
