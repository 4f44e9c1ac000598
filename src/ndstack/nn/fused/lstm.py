"""An LSTM that drives a stack: whole sequences, or single steps where the next input is not known yet.

    gates_t  = inputs_t + reading_weight r_{t-1} + hidden_weight h_{t-1}
    c_t      = f_t c_{t-1} + i_t g_t,   h_t = o_t tanh(c_t)
    controls = control_weight h_t + control_bias       (action logits; then the vector to push)
    s_t      = Stack(s_{t-1}, controls),   r_t = Reading(s_t)

This is section 3.2. With the stacks of ndstack all of it is one operation on CPUs: the classes below call the
compiled loops of `ndstack.ops.fused`.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, find, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.nondeterministic import (
    Chart,
    DeviceChart,
    distrusted,
    fuses,
    join_history,
    next_format,
    redo,
    run_fused,
    start_chart,
    start_device_chart,
    warn_of_loss,
)
from ndstack.ops.runtime import backends
from ndstack.ops.runtime.autograd import compilable, opaque_in_own_precision, own_precision
from ndstack.ops.runtime.stack_step import NO_LIMIT
from ndstack.ops.runtime.tracing import refuse_recording, untraced
from ndstack.stacks import (
    Nondeterministic,
    NondeterministicState,
    Stack,
    Stratification,
    StratificationState,
    Superposition,
    SuperpositionState,
)
from ndstack.stacks.base import StateT
from ndstack.stacks.checks import check_tensors, real

_NAMES = (*(f"{name} weights" for name in LSTMWeights._fields), "h", "c", "inputs")


def run_lstm(
    stack: Stack[StateT], inputs: Tensor, weights: LSTMWeights, lstm_state: LSTMState, state: StateT
) -> LSTMRun[StateT]:
    """Run an LSTM of H units and the stack that it drives over a whole sequence.

    Args:
        stack: any stack.
        inputs: [B, n, 4H], what the input contributes to the gates, biases included.
        weights: what the reading and the hidden state contribute, and the layer that drives the stack.
        lstm_state: h_0 and c_0, [B, H] each.
        state: the stacks to resume from.

    Returns:
        h_1..h_n, [B, n, H]; r_1..r_n, [B, n, reading_size]; (h_n, c_n); and the last state of the stacks.
    """
    if torch.compiler.is_dynamo_compiling():
        done: LSTMRun[StateT] = untraced(run_lstm, stack, inputs, weights, lstm_state, state)
        return done
    refuse_recording()
    with own_precision():
        inputs, weights, lstm_state = _checked(stack, inputs, weights, lstm_state, state, 3)
        pair = find("lstm", stack)
        if inputs.shape[1] > 1:
            return pair.run(stack, inputs, weights, lstm_state, state)
        if inputs.shape[1] == 1:
            (hidden, cell), state = pair.step(stack, inputs[:, 0], weights, lstm_state, state)
            return LSTMRun(hidden[:, None], state.reading[:, None], (hidden, cell), state)
        batch, units = lstm_state[0].shape
        nothing = inputs.new_zeros(batch, 0, stack.reading_size)
        return LSTMRun(inputs[:, :, :units], nothing, lstm_state, state)


@opaque_in_own_precision
def step_lstm(
    stack: Stack[StateT], inputs: Tensor, weights: LSTMWeights, lstm_state: LSTMState, state: StateT
) -> tuple[LSTMState, StateT]:
    """Make one step of `run_lstm`, with inputs [B, 4H]: (h_t, c_t), and the new state of the stacks."""
    inputs, weights, lstm_state = _checked(stack, inputs, weights, lstm_state, state, 2)
    return find("lstm", stack).step(stack, inputs, weights, lstm_state, state)


def _checked(
    stack: Stack[StateT],
    inputs: Tensor,
    weights: LSTMWeights,
    lstm_state: LSTMState,
    state: StateT,
    dimensions: int,
) -> tuple[Tensor, LSTMWeights, LSTMState]:
    """Return what an LSTM gives, in the precision of the stacks; raise an error unless all fits."""
    stack.check_state(state)
    check_tensors(inputs, *weights, *lstm_state)
    reading, units = state.reading, lstm_state[0].shape[-1] if lstm_state[0].dim() else 0
    batch, controls = reading.shape[0], stack.control_size
    if inputs.dim() != dimensions:
        wanted = f"[{batch}, length, {4 * units}]" if dimensions == 3 else f"[{batch}, {4 * units}]"
        raise NdstackError(f"inputs of shape {list(inputs.shape)} given, expected {wanted}")
    device, dtype, convert = reading.device, reading.dtype, False
    expected = (
        *((4 * units, stack.reading_size), (4 * units, units), (controls, units), (controls,)),
        *((batch, units), (batch, units), (batch, *inputs.shape[1:-1], 4 * units)),
    )
    for place, tensor in enumerate((*weights, *lstm_state, inputs)):
        if tensor.shape != expected[place]:
            raise NdstackError(
                f"{_NAMES[place]} of shape {list(tensor.shape)} given, expected {list(expected[place])} "
                f"for a batch of {batch} and {units} units: {stack.needs()}"
            )
        if tensor.device != device:
            raise NdstackError(
                f"the controller is on {tensor.device}, but the stack on {device}; use state.to(device)"
            )
        convert = convert or tensor.dtype != dtype
    if convert:
        weights = LSTMWeights(*(real(tensor).to(dtype) for tensor in weights))
        hidden, cell = (real(tensor).to(dtype) for tensor in lstm_state)
        inputs, lstm_state = real(inputs).to(dtype), (hidden, cell)
    return inputs, weights, lstm_state


@register("lstm", Superposition)
class SuperpositionLSTM(FusedLSTM[SuperpositionState]):
    """An LSTM with superposition stacks of equal sizes, on CPUs."""

    def step(
        self,
        stack: Stack[SuperpositionState],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: SuperpositionState,
    ) -> tuple[LSTMState, SuperpositionState]:
        """Make one step."""
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
        """Run a whole sequence."""
        assert isinstance(stack, Superposition)
        if not stack.even or not compilable(inputs):
            return super().run(stack, inputs, weights, lstm_state, state)
        hidden, readings, cell, cells = fused.superposition.run(
            inputs, weights, *lstm_state, state.reading, state.cells, stack.depth
        )
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), SuperpositionState(readings[:, -1], cells))


@register("lstm", Stratification)
class StratificationLSTM(FusedLSTM[StratificationState]):
    """An LSTM with a stratification stack, on CPUs."""

    def step(
        self,
        stack: Stack[StratificationState],
        gates: Tensor,
        weights: LSTMWeights,
        lstm_state: LSTMState,
        state: StratificationState,
    ) -> tuple[LSTMState, StratificationState]:
        """Make one step."""
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
        """Run a whole sequence."""
        if not compilable(inputs):
            return super().run(stack, inputs, weights, lstm_state, state)
        hidden, readings, cell, elements = fused.stratification.run(
            inputs, weights, *lstm_state, state.reading, state.elements
        )
        new = StratificationState(readings[:, -1], elements)
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)


@register("lstm", Nondeterministic)
class NondeterministicLSTM(FusedLSTM[NondeterministicState]):
    """An LSTM with nondeterministic stacks, on CPUs, unless derivatives flow into earlier charts.

    All is computed in the format that it needs (see `ndstack.ops.nondeterministic.precision_guard`). On other
    devices cell and stack take turns, and whether the format was enough is looked at once, in the end.
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
        linked = state.chart is not None and state.chart.requires_grad()
        chart = state.chart
        if isinstance(chart, DeviceChart) or (chart is None and not stack.compiled(inputs)):
            return self._run_on_device(stack, inputs, weights, lstm_state, state)
        if not inputs.is_cpu or linked or (state.time and chart is None):
            return super().run(stack, inputs, weights, lstm_state, state)
        if chart is None:
            chart = start_chart(stack.setting(), state.batch_size, inputs.shape[1], inputs.dtype)
        dtype = chart.dtype
        done = fused.nondeterministic.run(
            inputs.to(dtype),
            LSTMWeights(*(weight.to(dtype) for weight in weights)),
            (lstm_state[0].to(dtype), lstm_state[1].to(dtype), state.reading.to(dtype)),
            None if state.vectors is None else state.vectors.to(dtype),
            chart,
            normalized=stack.normalized,
            by_state=stack.read_states,
            limit=None if state.complete else math.inf,
        )
        untrusted = state.complete and not done.trusted.all()
        if untrusted and state.time:
            return super().run(stack, inputs, weights, lstm_state, state)
        after: Chart | None = done.chart
        parts = (done.hidden, done.readings, done.last_cell, done.actions, done.vectors)
        results = tuple(part.to(inputs.dtype) for part in parts[: 4 if stack.vector_size is None else 5])
        if untrusted:

            def again(rows: Tensor) -> tuple[Tensor, ...]:
                first = lstm_state[0][rows], lstm_state[1][rows]
                return self._again(stack, inputs[rows], weights, first)

            results, after = redo(results, ~done.trusted, again), None
        hidden, readings, cell, actions, *vectors = results
        new = NondeterministicState(
            readings[:, -1],
            vectors[0] if vectors else None,
            stack.remembered(state, actions, after is not None),
            after,
            state.time + inputs.shape[1],
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
        """Run a whole sequence by steps, and look at the end whether its charts can be trusted."""
        chart, steps = state.chart, inputs.shape[1]
        if chart is None and state.time == 0:
            chart = start_device_chart(stack.setting(), state.batch_size, steps, inputs.dtype, inputs.device)
        if not isinstance(chart, DeviceChart):
            return super().run(stack, inputs, weights, lstm_state, state)
        setting = stack.setting(backends.choose(inputs.device))
        plain = stack.read_states and not stack.normalized and chart.time == 0
        if fuses(setting, plain):
            found = run_fused(inputs, weights, (*lstm_state, state.reading), setting)
            history = stack.remembered(state, found.actions)
            seen = NondeterministicState(found.readings[:, -1], None, history, found.chart, steps)
            done = LSTMRun(found.hidden, found.readings, (found.hidden[:, -1], found.cell), seen)
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
        vectors = () if seen.vectors is None else (_padded(seen.vectors, steps),)

        def again(rows: Tensor) -> tuple[Tensor, ...]:
            first = lstm_state[0][rows], lstm_state[1][rows]
            return self._again(stack, inputs[rows], weights, first)

        results = (done.hidden, done.readings, done.lstm_state[1], actions, *vectors)
        hidden, readings, cell, actions, *rest = redo(results, ~after.trusted, again)
        new = NondeterministicState(readings[:, -1], rest[0] if rest else None, (actions,), None, steps)
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
        """Compute some sequences from their first step on in float64; by single steps, if they were in it.

        What was in float64 on another device is computed by single steps on the CPU.
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
        return *found, _padded(vectors, steps)


def _padded(vectors: Tensor, steps: int) -> Tensor:
    """The vectors of so many steps; those that a window has forgotten are zeros, which nobody reads again."""
    return torch.nn.functional.pad(vectors, (0, 0, steps + 1 - vectors.shape[1], 0))
