"""The nondeterministic stack with readings that are left unnormalised (section 11.2.2, change 3).

A reading is then the total weight of the runs that end in each (state, top symbol), alpha_t, and not its
share of all runs. It is computed by an ordinary stack with one additional state, s. One run enters s in the
first step and stays there for ever, pushing the bottom symbol, always with weight 1. If Z_t is the weight of
all runs, the share of this run is 1 / Z_t, so

    alpha_t[q, x] = p_t[q, x] / p_t[s, bottom],

which is exact, differentiable, and right with a window too. With vectors, a reading is the weight of these
runs times their expected top vector. All vectors then get one more component, which is 1, so that the last
component of a reading is p_t.
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
    """A nondeterministic stack that reads weights instead of probabilities.

    Weights grow or shrink exponentially with the number of steps: readings go to 0, or up to 1e19 (in float64
    1e153), where they stop, and the sum of all weights has no gradient any more.

    Args:
        original: the stack whose states, symbols, window and other settings are meant; it is never run.
    """

    def __init__(self, original: Stack[NondeterministicState]) -> None:
        super().__init__()
        if not isinstance(original, Nondeterministic):
            raise NdstackError(
                f"normalize_reading=False is for nondeterministic stacks, but the stack is {original!r}"
            )
        self.original = original
        size = None if original.vector_size is None else original.vector_size + 1
        self.inner = Nondeterministic(
            original.states + 1,
            original.symbols,
            size,
            window=original.window,
            bottom_fix=original.bottom_fix,
        )
        self.inner.bottom = None  # that of the original is learned
        self.action_size, self.push_size = original.action_size, original.push_size
        self.reading_size, self.push_activation = original.reading_size, original.push_activation

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> UnnormalizedState:
        """Return stacks that all hold the bottom symbol, in state 0, with weight 1."""
        first = self.original.start(batch_size, dtype=dtype, device=device)
        if first.vectors is None:
            return UnnormalizedState(first.reading, self.inner.start(batch_size, dtype=dtype, device=device))
        vectors = pad(first.vectors, (0, 1), value=1.0)
        reading = pad(vectors[:, 0], (0, self.inner.reading_size - self.inner.push_size))
        return UnnormalizedState(first.reading, NondeterministicState(reading, vectors, (), None, 0))

    def _fits(self, state: object) -> bool:
        inner: object = getattr(state, "inner", None)
        return (
            isinstance(state, UnnormalizedState)
            and isinstance(inner, NondeterministicState)
            and self.inner._belongs(inner)
            and inner.batch_size == len(state.reading)
        )

    def _step(self, state: UnnormalizedState, actions: Tensor, pushed: Tensor | None) -> UnnormalizedState:
        return self._scan(state, actions[:, None], None if pushed is None else pushed[:, None])[1]

    def _scan(
        self, state: UnnormalizedState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, UnnormalizedState]:
        if actions.shape[1] == 0:
            return actions.new_zeros(actions.shape[0], 0, self.reading_size), state
        shares, inner = self.inner.scan(
            self._with_one_more(actions, state.inner.time == 0),
            None if pushed is None else pad(pushed, (0, 1), value=1.0),
            state.inner,
        )
        states, symbols = self.original.states, self.original.symbols
        shares = shares.view(*shares.shape[:2], states + 1, symbols, -1)  # the last number of each is p_t
        unit = shares[:, :, states, 0, -1].clamp_min(_least(shares.dtype))
        weights = shares[:, :, :states, :, : self.push_size or 1] / unit[:, :, None, None, None]
        weights = (weights if self.original.read_states else weights.sum(2)).flatten(2)
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
