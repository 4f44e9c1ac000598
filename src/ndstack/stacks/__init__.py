"""Differentiable stacks behind one interface (`ndstack.stacks.base`)."""

from ndstack.stacks.base import PushActivation, Stack, State

__all__ = ["PushActivation", "Stack", "State"]
