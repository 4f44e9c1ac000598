"""An LSTM with superposition stacks as one operation."""

from __future__ import annotations

from torch import Tensor

from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.runtime.autograd import compilable
from ndstack.ops.superposition import NO_LIMIT
from ndstack.stacks import Stack, Superposition, SuperpositionState


@register("lstm", Superposition)
class SuperpositionLSTM(FusedLSTM[SuperpositionState]):
    """For stacks of equal sizes, on CPUs."""

    def step(
        self,
        stack: Stack[SuperpositionState],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: SuperpositionState,
    ) -> tuple[LSTMState, SuperpositionState]:
        """One step."""
        assert isinstance(stack, Superposition)
        if not stack.even or not compilable(gates):
            return super().step(stack, gates, weights, lstm_state, state)
        hidden, cell, *new = fused.step_superposition(
            stack.depth or NO_LIMIT, gates, weights, lstm_state, state.reading, state.cells
        )
        return (hidden, cell), SuperpositionState(*new)

    def run(
        self,
        stack: Stack[SuperpositionState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: SuperpositionState,
    ) -> LSTMRun[SuperpositionState]:
        """A whole sequence."""
        assert isinstance(stack, Superposition)
        if not stack.even or not compilable(inputs):
            return super().run(stack, inputs, weights, lstm_state, state)
        hidden, readings, cell, cells = fused.superposition.run(
            inputs, weights, *lstm_state, state.reading, state.cells, stack.depth
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), SuperpositionState(readings[:, -1], cells))
