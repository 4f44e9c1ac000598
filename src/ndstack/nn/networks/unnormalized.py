"""The nondeterministic stack with readings that are left unnormalised (section 11.2.2, change 3).

A reading is then the total weight of the runs that end in each (state, top symbol), alpha_t, and not its
share of all runs. It is computed by an ordinary stack with one additional state, s. One run enters s in the
first step and stays there for ever, pushing the bottom symbol, always with weight 1. If Z_t is the weight of
all runs, the share of this run is 1 / Z_t, so

    alpha_t[q, x] = p_t[q, x] / p_t[s, bottom],

which is exact, differentiable, and right with a window too.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ndstack.errors import NdstackError
from ndstack.stacks import Nondeterministic, NondeterministicState, Stack, State
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class UnnormalizedState(State):
    """What `Unnormalized` carries from step to step."""

    inner: NondeterministicState
    """The state of the stack with one additional state."""


class Unnormalized(Stack[UnnormalizedState]):
    """A nondeterministic stack of symbols that reads weights instead of probabilities.

    Weights grow or shrink exponentially with the number of steps: readings go to 0, or up to 1e19 (in float64
    1e153), where they stop, and the sum of all weights has no gradient any more.

    Args:
        original: the stack whose states, symbols, window and other settings are meant; it is never run.
    """

    def __init__(self, original: Stack[NondeterministicState]) -> None:
        super().__init__()
        if not isinstance(original, Nondeterministic) or original.vector_size is not None:
            raise NdstackError(
                "normalize_reading=False is for nondeterministic stacks without vectors, but the stack is "
                f"{original!r}"
            )
        self.original = original
        self.inner = Nondeterministic(
            original.states + 1, original.symbols, window=original.window, bottom_fix=original.bottom_fix
        )
        self.action_size, self.push_size = original.action_size, 0
        self.reading_size = original.reading_size

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> UnnormalizedState:
        """Return stacks that all hold the bottom symbol, in state 0, with weight 1."""
        reading = self.original.start(batch_size, dtype=dtype, device=device).reading
        return UnnormalizedState(reading, self.inner.start(batch_size, dtype=dtype, device=device))

    def _fits(self, state: object) -> bool:
        inner: object = getattr(state, "inner", None)
        return (
            isinstance(state, UnnormalizedState)
            and isinstance(inner, NondeterministicState)
            and self.inner._belongs(inner)
            and inner.batch_size == len(state.reading)
        )

    def _step(self, state: UnnormalizedState, actions: Tensor, pushed: Tensor | None) -> UnnormalizedState:
        return self._scan(state, actions[:, None], pushed)[1]

    def _scan(
        self, state: UnnormalizedState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, UnnormalizedState]:
        if actions.shape[1] == 0:
            return actions.new_zeros(actions.shape[0], 0, self.reading_size), state
        shares, inner = self.inner.scan(
            self._with_one_more(actions, state.inner.time == 0), None, state.inner
        )
        states, symbols = self.original.states, self.original.symbols
        unit = shares[..., states * symbols, None].clamp_min(_least(shares.dtype))
        weights = shares[..., : states * symbols] / unit
        if not self.original.read_states:
            weights = weights.view(*weights.shape[:2], states, symbols).sum(-2)
        return weights, UnnormalizedState(weights[:, -1], inner)

    def _with_one_more(self, actions: Tensor, first: bool) -> Tensor:
        """Return the log weights [B, n, A] of the given actions and of the run through the new state."""
        states, symbols = self.original.states, self.original.symbols
        kinds, shape = states * symbols, (*actions.shape[:2], states, symbols, states)
        sizes = [kinds * kinds, kinds * kinds, kinds * states]
        parts = torch.split(self.original.log_weights(actions), sizes, dim=-1)
        push, replace = (
            pad(part.view(*shape, symbols), (0, 0, 0, 1, 0, 0, 0, 1), value=-math.inf) for part in parts[:2]
        )
        pop = pad(parts[2].view(shape), (0, 1, 0, 0, 0, 1), value=-math.inf)
        unit = torch.zeros(push.shape[1:], dtype=torch.bool, device=push.device)
        unit[:, states, 0, states, 0] = True
        unit[0, 0, 0, states, 0] = first
        push = push.masked_fill(unit, 0.0)
        return torch.cat([part.flatten(2) for part in (push, replace, pop)], dim=-1)


def _least(dtype: torch.dtype) -> float:
    """Return the least share that readings are divided by: the square of its inverse is still a number."""
    return math.sqrt(torch.finfo(dtype).tiny)
