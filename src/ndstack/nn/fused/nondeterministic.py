"""An LSTM with nondeterministic stacks as one operation, in the format that it needs (see `ndstack.ops`)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.nondeterministic import Chart, join_history, next_format, redo, start_chart
from ndstack.stacks import Nondeterministic, NondeterministicState, Stack


@register("lstm", Nondeterministic)
class NondeterministicLSTM(FusedLSTM[NondeterministicState]):
    """On CPUs, where no derivatives with respect to earlier charts are wanted."""

    def run(
        self,
        stack: Stack[NondeterministicState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        """A whole sequence."""
        assert isinstance(stack, Nondeterministic)
        state = state.settled()
        linked = state.chart is not None and state.chart.requires_grad()
        if not inputs.is_cpu or linked or (state.time and state.chart is None):
            return super().run(stack, inputs, weights, lstm_state, state)
        done = _run(stack, inputs, weights, lstm_state, state)
        if state.complete and state.time and not done.trusted.all():
            return super().run(stack, inputs, weights, lstm_state, state)
        dtype, count = inputs.dtype, 4 if stack.vector_size is None else 5
        parts = (done.hidden, done.readings, done.last_cell, done.actions, done.vectors)[:count]
        results = tuple(part.to(dtype) for part in parts)

        def again(rows: Tensor) -> tuple[Tensor, ...]:
            """Some sequences from their first step on, in float64, and step by step after that."""
            run = next_format(dtype, self.run, super(NondeterministicLSTM, self).run)
            wide = LSTMWeights(*(weight.double() for weight in weights))
            first = lstm_state[0][rows].double(), lstm_state[1][rows].double()
            start = stack.start(len(rows), dtype=torch.float64)
            better = run(stack, inputs[rows].double(), wide, first, start)
            actions = join_history(better.state.history, stack.setting(), len(rows), inputs.shape[1])
            found = better.hidden, better.readings, better.lstm_state[1], actions
            vectors = better.state.vectors
            if vectors is None:
                return found
            forgotten = inputs.shape[1] + 1 - vectors.shape[1]  # by a window; nobody reads these again
            return *found, torch.nn.functional.pad(vectors, (0, 0, forgotten, 0))

        chart: Chart | None = done.chart
        if state.complete and not done.trusted.all():
            results, chart = redo(results, ~done.trusted, again), None
        hidden, readings, cell, actions, *vectors = results
        new = NondeterministicState(
            readings[:, -1],
            vectors[0] if vectors else None,
            stack.remembered(state, actions, chart is not None),
            chart,
            state.time + inputs.shape[1],
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)


def _run(
    stack: Nondeterministic,
    inputs: Tensor,
    weights: LSTMWeights,
    lstm_state: LSTMState,
    state: NondeterministicState,
) -> fused.nondeterministic.Run:
    """All steps in the dtype of the charts."""
    chart = state.chart
    if chart is None:
        chart = start_chart(stack.setting(), state.batch_size, inputs.shape[1], inputs.dtype)
    dtype = chart.dtype
    return fused.nondeterministic.run(
        inputs.to(dtype),
        LSTMWeights(*(weight.to(dtype) for weight in weights)),
        (lstm_state[0].to(dtype), lstm_state[1].to(dtype), state.reading.to(dtype)),
        None if state.vectors is None else state.vectors.to(dtype),
        chart,
        normalized=stack.normalized,
        by_state=stack.read_states,
        limit=None if state.complete else math.inf,
    )
