"""An LSTM that drives a stack: whole sequences, or single steps where the next input is not known yet.

    gates_t  = inputs_t + reading_weight r_{t-1} + hidden_weight h_{t-1}
    c_t      = f_t c_{t-1} + i_t g_t,   h_t = o_t tanh(c_t)
    controls = control_weight h_t + control_bias       (action logits; then the vector to push)
    s_t      = Stack(s_{t-1}, controls),   r_t = Reading(s_t)

This is section 3.2. With the stacks of ndstack all of it is one operation on CPUs: the classes below call the
compiled loops of `ndstack.ops.fused`; that of nondeterministic stacks is in `nondeterministic`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, find, register
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.runtime.autograd import compilable, opaque_in_own_precision, own_precision
from ndstack.ops.runtime.in_graph import Fresh
from ndstack.ops.runtime.stack_step import NO_LIMIT
from ndstack.ops.runtime.tracing import refuse_recording, traceable, untraced
from ndstack.stacks import Stack, Stratification, StratificationState, Superposition, SuperpositionState
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
    if torch.compiler.is_dynamo_compiling() and not traceable(state):
        done: LSTMRun[StateT] = untraced()(run_lstm, stack, inputs, weights, lstm_state, state)
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
    """Check the arguments, and return them in the dtype of the stacks."""
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

    def fresh(self, stack: Stack[SuperpositionState], batch: int, dtype: torch.dtype) -> Fresh | None:
        """Return how empty stacks of equal sizes are run."""
        if type(stack) is not Superposition or not stack.even:
            return None
        return Fresh(fused.superposition.__name__, (stack.action_size // 3, stack.depth or NO_LIMIT))

    def enters_graphs(self, stack: Stack[SuperpositionState]) -> bool:
        """Return whether the stacks have equal sizes."""
        return isinstance(stack, Superposition) and stack.even

    def run_in_graph(
        self, stack: Stack[SuperpositionState], inputs: Tensor, weights: LSTMWeights
    ) -> LSTMRun[SuperpositionState]:
        """Run a whole sequence inside a graph of `torch.compile`."""
        assert isinstance(stack, Superposition)
        hidden, readings, cell, cells = fused.in_graph.superposition(
            inputs, weights, stack.action_size // 3, stack.depth
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

    def fresh(self, stack: Stack[StratificationState], batch: int, dtype: torch.dtype) -> Fresh | None:
        """Return how empty stacks are run."""
        return Fresh(fused.stratification.__name__, ()) if type(stack) is Stratification else None

    def enters_graphs(self, stack: Stack[StratificationState]) -> bool:
        """Return True."""
        return True

    def run_in_graph(
        self, stack: Stack[StratificationState], inputs: Tensor, weights: LSTMWeights
    ) -> LSTMRun[StratificationState]:
        """Run a whole sequence inside a graph of `torch.compile`."""
        hidden, readings, cell, elements = fused.in_graph.stratification(inputs, weights)
        new = StratificationState(readings[:, -1], elements)
        return LSTMRun(hidden, readings, (hidden[:, -1], cell), new)
