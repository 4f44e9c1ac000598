"""An LSTM with a stratification stack as one operation."""

from __future__ import annotations

from torch import Tensor

from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.runtime.autograd import compilable
from ndstack.stacks import Stack, Stratification, StratificationState


@register("lstm", Stratification)
class StratificationLSTM(FusedLSTM[StratificationState]):
    """On CPUs."""

    def step(
        self,
        stack: Stack[StratificationState],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: StratificationState,
    ) -> tuple[LSTMState, StratificationState]:
        """One step."""
        if not compilable(gates):
            return super().step(stack, gates, weights, lstm_state, state)
        hidden, cell, *new = fused.step_stratification(
            gates, weights, lstm_state, state.reading, state.elements
        )
        return (hidden, cell), StratificationState(*new)

    def run(
        self,
        stack: Stack[StratificationState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: StratificationState,
    ) -> LSTMRun[StratificationState]:
        """A whole sequence."""
        if not compilable(inputs):
            return super().run(stack, inputs, weights, lstm_state, state)
        hidden, readings, cell, elements = fused.stratification.run(
            inputs, weights, *lstm_state, state.reading, state.elements
        )
        return LSTMRun(
            hidden, readings, (hidden[:, -1], cell), StratificationState(readings[:, -1], elements)
        )
