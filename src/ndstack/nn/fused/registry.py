"""The registry of pairs of a controller and a kind of stack that run as one operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ndstack.ops.lstm import LSTMWeights, lstm_cell
from ndstack.ops.runtime.in_graph import Fresh
from ndstack.stacks import Stack
from ndstack.stacks.base import AnyStack, StateT

LSTMState = tuple[Tensor, Tensor]
"""h_t and c_t, [B, H] each."""

_STEP = ("_step", "_drive", "log_weights")
"""The methods that say what a step is; a subclass that changes one of them is another kind of stack."""


class LSTMRun(NamedTuple, Generic[StateT]):
    """What a whole sequence gives: h_1..h_n [B, n, H], r_1..r_n [B, n, reading_size], and the last states."""

    hidden: Tensor
    readings: Tensor
    lstm_state: LSTMState
    state: StateT


class FusedLSTM(Generic[StateT]):
    """An LSTM that drives a stack of any kind; in this class, cell and stack take turns.

    Subclasses do all of it in one operation for some kind of stack where they can, and fall back to this
    class where they cannot. Their arguments have been checked and are of one dtype.
    """

    def step(
        self,
        stack: Stack[StateT],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: StateT,
    ) -> tuple[LSTMState, StateT]:
        """Make one step; the gates are [B, 4H]."""
        hidden, cell = lstm_cell(gates, state.reading, *lstm_state, weights.reading, weights.hidden)
        return (hidden, cell), stack._drive(state, hidden, weights.control, weights.control_bias)

    def run(
        self,
        stack: Stack[StateT],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: StateT,
    ) -> LSTMRun[StateT]:
        """Run a whole sequence; the inputs are [B, n, 4H], n > 0."""
        hidden, readings = [], []
        for gates in inputs.unbind(1):
            lstm_state, state = self.step(stack, gates, weights, lstm_state, state)
            hidden.append(lstm_state[0])
            readings.append(state.reading)
        return LSTMRun(torch.stack(hidden, dim=1), torch.stack(readings, dim=1), lstm_state, state)

    def fresh(self, stack: Stack[StateT], batch: int, dtype: torch.dtype) -> Fresh | None:
        """Return how stacks are run from the start, on a CPU, by an operation of its own; None if by none."""
        return None

    def enters_graphs(self, stack: Stack[StateT]) -> bool:
        """Return whether there is a `run_in_graph`."""
        return False

    def run_in_graph(self, stack: Stack[StateT], inputs: Tensor, weights: LSTMWeights) -> LSTMRun[StateT]:
        """Run a whole sequence from the start, on a CPU, where `torch.compile` traces it."""
        raise NotImplementedError


_pairs: dict[tuple[str, type], FusedLSTM[Any]] = {}
_found: dict[tuple[str, type], FusedLSTM[Any]] = {}  # not functools.cache, which torch.compile warns of
_TURNS = FusedLSTM[Any]()
_Pair = TypeVar("_Pair", bound=type[FusedLSTM[Any]])


def register(controller: str, stack: type[AnyStack]) -> Callable[[_Pair], _Pair]:
    """Return a decorator for a class that runs a kind of controller with a kind of stack.

    Args:
        controller: "lstm".
        stack: a subclass of `Stack`.
    """

    def enter(pair: _Pair) -> _Pair:
        _pairs[controller, stack] = pair()
        _found.clear()
        return pair

    return enter


def find(controller: str, stack: Stack[StateT]) -> FusedLSTM[StateT]:
    """Return what runs such a controller with this stack: as one operation, if such a pair is registered."""
    kind = type(stack)
    pair = _found.get((controller, kind))
    if pair is None:
        pair = _found[controller, kind] = _find(controller, kind)
    return pair


def _find(controller: str, kind: type[AnyStack]) -> FusedLSTM[Any]:
    """`find` for a class of stacks; what a class inherits counts, unless the class changes what a step is."""
    for base in kind.__mro__:
        pair = _pairs.get((controller, base))
        if pair is not None:
            same = all(getattr(kind, name, None) is getattr(base, name, None) for name in _STEP)
            return pair if same else _TURNS
    return _TURNS
