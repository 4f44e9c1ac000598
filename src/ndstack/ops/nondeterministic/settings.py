"""What a backend is told about the automaton, and how the log weights of its actions are ordered."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Setting(NamedTuple):
    """Which automaton, and how to compute it.

    Attributes:
        states, symbols: |Q| and |Gamma|.
        window: chapter 7's D, or None.
        bottom_fix: chapter 8's treatment of the initial bottom symbol, else chapter 4's.
        backend: "cpu", "portable" or "reference".
        attend: whether the attention is wanted.
        strict: whether it has to be right even for configuration types whose probability is next
            to nothing.
    """

    states: int
    symbols: int
    window: int | None
    bottom_fix: bool
    backend: str
    attend: bool
    strict: bool = False


def action_sizes(states: int, symbols: int) -> list[int]:
    """How many weights of push, replace and pop a step has."""
    kinds = states * symbols
    return [kinds * kinds, kinds * kinds, kinds * states]


def shaped(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """push and replace [B, n, Q, S, Q, S], and pop [B, n, Q, S, Q], from [B, n, A]."""
    kinds, leading = (setting.states, setting.symbols), actions.shape[:2]
    push, replace, pop = torch.split(actions, action_sizes(*kinds), -1)
    return (
        push.reshape(*leading, *kinds, *kinds),
        replace.reshape(*leading, *kinds, *kinds),
        pop.reshape(*leading, *kinds, setting.states),
    )
