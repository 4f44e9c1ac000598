"""An LSTM that drives a nondeterministic stack (see `lstm`), in the format that it needs."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.nondeterministic import (
    Chart,
    DeviceChart,
    FixedChart,
    distrusted,
    fuses,
    join_history,
    next_format,
    redo,
    run_fused,
    run_steps,
    start_chart,
    start_device_chart,
    warn_of_loss,
)
from ndstack.ops.runtime import backends, in_graph
from ndstack.ops.runtime.addresses import written, zeros
from ndstack.ops.runtime.in_graph import Fresh
from ndstack.stacks import Nondeterministic, NondeterministicState, Stack

_PASSES = "ndstack.nn.fused.nondeterministic_in_graph"
"""Where the passes of the operation are that runs fresh stacks."""


@register("lstm", Nondeterministic)
class NondeterministicLSTM(FusedLSTM[NondeterministicState]):
    """An LSTM with nondeterministic stacks.

    Each sequence is computed in the narrowest format that is precise enough (see
    `ndstack.ops.nondeterministic.precision_guard`), which is checked once, at the end. On a CPU a whole
    sequence is one operation; with Triton it is one kernel; otherwise the LSTM's cell and the stack take
    turns. A single step on a CPU is one operation, too, if the stack has no vectors, no window and reads its
    states.
    """

    def step(
        self,
        stack: Stack[NondeterministicState],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> tuple[LSTMState, NondeterministicState]:
        """Make one step."""
        assert isinstance(stack, Nondeterministic)
        chart = None if stack.normalized else stack.steps_alone(state, gates)
        if chart is None:
            return super().step(stack, gates, weights, lstm_state, state)
        done = fused.nondeterministic_step.step(chart, gates, weights, lstm_state, state.reading)
        if not done.all_trusted:
            return super().step(stack, gates, weights, lstm_state, state)
        return (done.hidden, done.cell), state.after_one(done.reading, done.actions, done.chart)

    def run(
        self,
        stack: Stack[NondeterministicState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        """Run a whole sequence."""
        assert isinstance(stack, Nondeterministic)
        state = state.settled()
        chart = state.chart
        if isinstance(chart, FixedChart):
            return super().run(stack, inputs, weights, lstm_state, state)
        if isinstance(chart, DeviceChart) or (chart is None and not stack.compiled(inputs)):
            return self._run_on_device(stack, inputs, weights, lstm_state, state)
        if not inputs.is_cpu or (state.time if chart is None else chart.only_in_log_space):
            return super().run(stack, inputs, weights, lstm_state, state)
        if chart is None:
            chart = start_chart(stack.setting(), state.batch_size, inputs.shape[1], inputs.dtype)
        dtype = chart.dtype
        own, first = weights, (*lstm_state, state.reading)
        if dtype is not inputs.dtype:
            own = LSTMWeights(*(weight.to(dtype) for weight in weights))
            first = (lstm_state[0].to(dtype), lstm_state[1].to(dtype), state.reading.to(dtype))
        done = fused.nondeterministic.run(
            inputs.to(dtype),
            own,
            first,
            None if state.vectors is None else state.vectors.to(dtype),
            chart,
            normalized=stack.normalized,
            by_state=stack.read_states,
            limit=None if state.complete else math.inf,
        )
        trusted = done.trusted if state.complete else None
        if trusted is not None and state.time:
            run = next_format(dtype, self._run_in_float64, super().run)
            return run(stack, inputs, weights, lstm_state, state)
        after: Chart | None = done.chart
        parts = (done.hidden, done.readings, done.last_cell, done.actions, done.vectors)
        results = tuple(part.to(inputs.dtype) for part in parts[: 4 if stack.vector_size is None else 5])
        if trusted is not None:

            def again(rows: Tensor) -> tuple[Tensor, ...]:
                first = lstm_state[0][rows], lstm_state[1][rows]
                return self._again(stack, inputs[rows], weights, first)

            results, after = redo(results, ~trusted, again), None
        hidden, readings, cell, actions, *rest = results
        new = NondeterministicState(
            readings[:, -1],
            rest[0] if rest else None,
            stack.remembered(state, actions, after),
            after,
            state.time + inputs.shape[1],
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)

    def _run_in_float64(
        self,
        stack: Stack[NondeterministicState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        """Continue a chart in float64, for which the steps before this run are made again.

        What they lost in float32 may have been too little to matter then, and matter now.
        """
        assert isinstance(stack, Nondeterministic)
        setting = stack.setting()._replace(backend="cpu", attend=False)
        past = join_history(state.history, setting, state.batch_size, state.time)
        chart = run_steps(setting, None, 0, (), past.double()).chart
        return self.run(stack, inputs, weights, lstm_state, dataclasses.replace(state, chart=chart))

    def fresh(self, stack: Stack[NondeterministicState], batch: int, dtype: torch.dtype) -> Fresh | None:
        """Return how stacks that hold the bottom symbol are run."""
        if type(stack) is not Nondeterministic or backends.forced() not in ("auto", "cpu"):
            return None
        if stack.bottom is None:  # the same as below, in a third of the time
            shape = (batch, stack.reading_size)
            reading = zeros(dtype, *shape)
            written(reading, dtype, *shape)[:, 0] = 1
            return Fresh(_PASSES, _numbers(stack), (reading,))
        reading, bottom = stack.first(batch, dtype, "cpu")
        assert bottom is not None
        return Fresh(_PASSES, _numbers(stack), (reading, bottom, stack.bottom))

    def enters_graphs(self, stack: Stack[NondeterministicState]) -> bool:
        """Return True."""
        return True

    def run_in_graph(
        self, stack: Stack[NondeterministicState], inputs: Tensor, weights: LSTMWeights
    ) -> LSTMRun[NondeterministicState]:
        """Run a whole sequence inside a graph of `torch.compile`.

        A graph hands out no charts; if the state is used, they are made again from the actions.
        """
        assert isinstance(stack, Nondeterministic)
        reading, bottom = stack.first(inputs.shape[0], inputs.dtype, inputs.device)
        first = (reading,) if bottom is None or stack.bottom is None else (reading, bottom, stack.bottom)
        hidden, readings, cell, actions, *vectors = in_graph.call(
            _PASSES, _numbers(stack), inputs, *weights, *first
        )
        new = NondeterministicState(
            readings[:, -1], vectors[0] if vectors else None, (actions,), None, inputs.shape[1]
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)

    def _run_on_device(
        self,
        stack: Nondeterministic,
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        """Run a whole sequence, and look at the end whether its charts can be trusted.

        That of a windowed stack goes by pieces, whose charts do not grow with the whole.
        """
        chart, steps = state.chart, inputs.shape[1]
        if stack.span is not None and steps > stack.span:
            return self._run_by_pieces(stack, inputs, weights, lstm_state, state)
        if chart is None and state.time == 0:
            differentiable = torch.is_grad_enabled() and (
                inputs.requires_grad or weights.control.requires_grad
            )
            chart = start_device_chart(
                stack.setting(), state.batch_size, steps, inputs.dtype, inputs.device, differentiable
            )
        if not isinstance(chart, DeviceChart):
            return super().run(stack, inputs, weights, lstm_state, state)
        setting = stack.setting(backends.choose(inputs.device))
        if fuses(setting, chart.room_after(steps)):
            done = self._run_fused(stack, inputs, weights, lstm_state, state, chart)
        else:
            blind = dataclasses.replace(state, chart=dataclasses.replace(chart, watched=False))
            done = super().run(stack, inputs, weights, lstm_state, blind)
        seen, after = done.state, done.state.chart
        assert isinstance(after, DeviceChart)
        after = dataclasses.replace(after, watched=True)
        if inputs.is_meta or not distrusted(after):
            return done._replace(state=dataclasses.replace(seen, chart=after))
        if not state.complete:
            warn_of_loss("float64")
            return done._replace(state=dataclasses.replace(seen, chart=after))
        if state.time:
            return self._run_on_cpu(stack, inputs, weights, lstm_state, state)
        actions = join_history(seen.history, stack.setting(), state.batch_size, steps)
        vectors = () if seen.vectors is None else (padded(seen.vectors, steps),)

        def again(rows: Tensor) -> tuple[Tensor, ...]:
            first = lstm_state[0][rows], lstm_state[1][rows]
            return self._again(stack, inputs[rows], weights, first)

        results = (done.hidden, done.readings, done.lstm_state[1], actions, *vectors)
        hidden, readings, cell, actions, *rest = redo(results, ~after.trusted, again)
        new = NondeterministicState(readings[:, -1], rest[0] if rest else None, (actions,), None, steps)
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)

    def _run_by_pieces(
        self,
        stack: Nondeterministic,
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        hidden, readings = [], []
        for piece in torch.split(inputs, stack.span or inputs.shape[1], 1):
            done = self.run(stack, piece, weights, lstm_state, state)
            lstm_state, state = done.lstm_state, done.state
            hidden.append(done.hidden)
            readings.append(done.readings)
        return LSTMRun(torch.cat(hidden, 1), torch.cat(readings, 1), lstm_state, state)

    def _run_fused(
        self,
        stack: Nondeterministic,
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
        chart: DeviceChart,
    ) -> LSTMRun[NondeterministicState]:
        """Run a whole sequence by one kernel, in the dtype of the charts."""
        dtype, given = chart.dtype, inputs.dtype
        found = run_fused(
            inputs.to(dtype),
            [weight.to(dtype) for weight in weights],
            [part.to(dtype) for part in (*lstm_state, state.reading)],
            None if state.vectors is None else state.vectors.to(dtype),
            chart,
            normalized=stack.normalized,
            by_state=stack.read_states,
        )
        hidden, readings, cell, actions, vectors = (part.to(given) for part in found[:5])
        new = NondeterministicState(
            readings[:, -1],
            None if state.vectors is None else vectors,
            stack.remembered(state, actions, found.chart),
            found.chart,
            state.time + inputs.shape[1],
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)

    def _run_on_cpu(
        self,
        stack: Stack[NondeterministicState],
        inputs: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: NondeterministicState,
    ) -> LSTMRun[NondeterministicState]:
        """Run a whole sequence by compiled single steps, each in the format that it needs."""
        device, here = inputs.device, dataclasses.replace(state, chart=None).to("cpu")
        moved = LSTMWeights(*(weight.cpu() for weight in weights))
        with backends.using("cpu"):
            done = super().run(stack, inputs.cpu(), moved, (lstm_state[0].cpu(), lstm_state[1].cpu()), here)
        new = dataclasses.replace(done.state, chart=None).to(device)
        memory = done.lstm_state[0].to(device), done.lstm_state[1].to(device)
        return LSTMRun(done.hidden.to(device), done.readings.to(device), memory, new)

    def _again(
        self, stack: Nondeterministic, inputs: Tensor, weights: LSTMWeights, lstm_state: LSTMState
    ) -> tuple[Tensor, ...]:
        """Compute some sequences again from their first step on.

        What was in float32 is computed in float64; what was in float64, by single steps on the CPU, which use
        log space where it is needed.
        """
        compiled = stack.compiled(inputs)
        run = next_format(inputs.dtype, self.run, super().run if compiled else self._run_on_cpu)
        wide = LSTMWeights(*(weight.double() for weight in weights))
        first = lstm_state[0].double(), lstm_state[1].double()
        batch, steps = inputs.shape[:2]
        start = stack.start(batch, dtype=torch.float64, device=inputs.device)
        better = run(stack, inputs.double(), wide, first, start)
        actions = join_history(better.state.history, stack.setting(), batch, steps)
        found = better.hidden, better.readings, better.lstm_state[1], actions
        vectors = better.state.vectors
        if vectors is None:
            return found
        return *found, padded(vectors, steps)


def _numbers(stack: Nondeterministic) -> tuple[int, ...]:
    """Return what the operation of graphs is told of the stack."""
    kind = int(stack.normalized), int(stack.read_states), stack.window or 0, int(stack.bottom_fix)
    return stack.states, stack.symbols, stack.vector_size or 0, *kind


def padded(vectors: Tensor, steps: int) -> Tensor:
    """The vectors of so many steps; those that a window has forgotten are zeros, never read again."""
    return torch.nn.functional.pad(vectors, (0, 0, steps + 1 - vectors.shape[1], 0))
