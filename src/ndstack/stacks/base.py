"""The interface that all differentiable stacks share (section 3.2, the controller-stack interface).

A stack is driven by its owner, a recurrent controller or a layer of stack attention. At step t the
owner supplies raw *action logits* and, if the stack holds vectors, the vector to push; the stack
updates itself and offers a *reading* r_t of its top:

    s_t = Stack(s_{t-1}, a_t),      r_t = Reading(s_t).

What turns logits into weights (softmax, sigmoid, nothing) belongs to the stack. What squashes the
pushed vector belongs to the owner, since stack attention and "push the hidden state" squash
nothing; `Stack.push_activation` names the function that the dissertation's RNNs use.

A stack is a `torch.nn.Module` without running state: what changes from step to step is a `State`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.lstm.weights import cell as lstm_cell
from ndstack.ops.runtime.autograd import in_own_precision
from ndstack.ops.runtime.tracing import Recordable, opaque
from ndstack.stacks.state import Device, State

__all__ = ["PushActivation", "Stack", "State", "StateT"]

PushActivation = Literal["sigmoid", "tanh", "identity"]
"""What a learned vector goes through before it is pushed."""


StateT = TypeVar("StateT", bound=State)

_BUILT_ON = {
    "log_weights": ("_drive", "_step_lstm", "_run_lstm"),
    "_step": ("_scan", "_drive", "_step_lstm", "_run_lstm"),
    "_drive": ("_step_lstm", "_run_lstm"),
    "_step_lstm": ("_run_lstm",),
}
"""What the methods of the base class use, by which a subclass is to be judged if it has changed that."""


class Stack(Recordable, torch.nn.Module, ABC, Generic[StateT]):
    """A differentiable stack.

    Attributes:
        action_size: how many action logits the owner supplies at each step.
        push_size: how many numbers the pushed vector has; 0 if the stack holds no vectors.
        reading_size: how many numbers a reading has.
        push_activation: what the dissertation's RNNs apply to a learned pushed vector. The owner
            applies it, or not.

    Subclasses set these four and define `start`, `_step` and, where they can do better than the
    versions here, `_scan`, `_drive`, `_step_lstm` and `_run_lstm`; and `_fits`, if what they carry has to be
    of certain sizes. The public methods check shapes and states and bring what they are given to the dtype of
    the state, in which all is computed, in a region of `torch.autocast` too.
    """

    action_size: int
    push_size: int
    reading_size: int
    push_activation: PushActivation = "sigmoid"

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that changes what a step is inherits no faster version of what steps were before."""
        super().__init_subclass__(**options)
        own = vars(cls)
        older = {name for changed, names in _BUILT_ON.items() if changed in own for name in names}
        for name in older - own.keys():
            setattr(cls, name, getattr(Stack, name))

    @abstractmethod
    def start(self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None) -> StateT:
        """The stacks before the first step; `state.reading` is r_0.

        Args:
            batch_size: how many stacks.
            dtype: of the readings; torch's default if not given.
            device: where; torch's default device if not given.
        """

    @opaque
    @in_own_precision
    def step(self, state: StateT, actions: Tensor, pushed: Tensor | None = None) -> StateT:
        """One step. The new reading is `new_state.reading`; the old state stays valid.

        Args:
            state: the stacks so far.
            actions: [B, action_size], raw logits.
            pushed: [B, push_size]; None if and only if `push_size` is 0.
        """
        self._check_state(state)
        self._check(actions, pushed, (state.batch_size,), state)
        dtype = state.reading.dtype
        if actions.dtype != dtype:
            actions = _real(actions).to(dtype)
        if pushed is not None and pushed.dtype != dtype:
            pushed = _real(pushed).to(dtype)
        return self._step(state, actions, pushed)

    @property
    def control_size(self) -> int:
        """How wide the layer that drives the stack is: `action_size + push_size`."""
        return self.action_size + self.push_size

    @opaque
    @in_own_precision
    def drive(self, state: StateT, hidden: Tensor, weight: Tensor, bias: Tensor) -> StateT:
        """One step from the hidden state of a controller, with the layer between the two.

        The same as a linear layer whose output is split into action logits and the vector to push,
        in this order, then `push_activation` on the latter, then `step`; but faster, where the
        stack can do it all in one operation.

        Args:
            state: the stacks so far.
            hidden: [B, H].
            weight: [control_size, H].
            bias: [control_size].
        """
        self._check_state(state)
        _check_tensors(hidden, weight, bias)
        reading, size = state.reading, self.action_size + self.push_size
        units = hidden.shape[-1] if hidden.dim() else 0
        if (
            hidden.shape != (reading.shape[0], units)
            or weight.shape != (size, units)
            or bias.shape != (size,)
        ):
            raise NdstackError(
                f"hidden state of shape {list(hidden.shape)}, weight of shape {list(weight.shape)} "
                f"and bias of shape {list(bias.shape)} given, expected "
                f"[{reading.shape[0]}, units], [{size}, units] and [{size}]: {self._wants()}"
            )
        device = reading.device
        if hidden.device != device or weight.device != device or bias.device != device:
            raise NdstackError(
                f"the hidden state is on {hidden.device} and the layer on {weight.device} and {bias.device}, "
                f"but the stack is on {device}; use state.to(device)"
            )
        if hidden.dtype != reading.dtype:
            hidden = _real(hidden).to(reading.dtype)
        if weight.dtype != reading.dtype:
            weight = _real(weight).to(reading.dtype)
        if bias.dtype != reading.dtype:
            bias = _real(bias).to(reading.dtype)
        return self._drive(state, hidden, weight, bias)

    @opaque
    @in_own_precision
    def scan(
        self, actions: Tensor, pushed: Tensor | None = None, state: StateT | None = None
    ) -> tuple[Tensor, StateT]:
        """A whole sequence of steps, of any length, 0 included.

        Args:
            actions: [B, n, action_size], raw logits.
            pushed: [B, n, push_size]; None if and only if `push_size` is 0.
            state: the stacks to go on from; fresh ones, in float32 or better, if not given.

        Returns:
            The readings after each of the n steps, [B, n, reading_size], and the last state.
        """
        _check_tensors(actions)
        if actions.dim() != 3:
            raise NdstackError(
                f"actions of shape {list(actions.shape)} given, expected [batch, length, {self.action_size}]"
            )
        if state is None:
            dtype = torch.promote_types(_real(actions).dtype, torch.float32)
            state = self.start(actions.shape[0], dtype=dtype, device=actions.device)
        self._check_state(state)
        self._check(actions, pushed, (state.batch_size, actions.shape[1]), state)
        dtype = state.reading.dtype
        pushed = None if pushed is None else _real(pushed).to(dtype)
        return self._scan(state, _real(actions).to(dtype), pushed)

    @opaque
    @in_own_precision
    def run_lstm(
        self,
        inputs: Tensor,
        weights: LSTMWeights,
        memory: tuple[Tensor, Tensor],
        state: StateT,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], StateT]:
        """A whole sequence with an LSTM of H units as the controller, which uses `drive`.

        The same as the steps of section 3.2 one by one; but many times faster, where the stack can
        do it all in one operation.

        Args:
            inputs: [B, n, 4H], what the input contributes to the gates, biases included.
            weights: what the reading and the hidden state contribute, and the control layer.
            memory: h_0 and c_0, [B, H] each.
            state: the stacks to go on from.

        Returns:
            h_1..h_n, [B, n, H]; r_1..r_n, [B, n, reading_size]; (h_n, c_n); and the last state.
        """
        self._check_state(state)
        _check_tensors(inputs, *weights, *memory)
        batch, units = state.batch_size, memory[0].shape[-1] if memory[0].dim() else 0
        if inputs.dim() != 3:
            raise NdstackError(
                f"inputs of shape {list(inputs.shape)} given, expected [{batch}, length, {4 * units}]"
            )
        inputs, weights, memory = self._fitting(inputs, weights, memory, state)
        if inputs.shape[1] == 0:
            return (
                inputs[:, :, :units],
                inputs.new_zeros(batch, 0, self.reading_size),
                memory,
                state,
            )
        return self._run_lstm(inputs, weights, memory, state)

    @opaque
    @in_own_precision
    def step_lstm(
        self, inputs: Tensor, weights: LSTMWeights, memory: tuple[Tensor, Tensor], state: StateT
    ) -> tuple[tuple[Tensor, Tensor], StateT]:
        """One step of `run_lstm`, for sequences that are not known beforehand.

        Args:
            inputs: [B, 4H], what the input contributes to the gates, biases included.
            weights: what the reading and the hidden state contribute, and the control layer.
            memory: h_{t-1} and c_{t-1}, [B, H] each.
            state: the stacks so far.

        Returns:
            (h_t, c_t), and the new state.
        """
        self._check_state(state)
        _check_tensors(inputs, *weights, *memory)
        if inputs.dim() != 2:
            raise NdstackError(f"inputs of shape {list(inputs.shape)} given, expected [batch, 4 * units]")
        return self._step_lstm(*self._fitting(inputs, weights, memory, state), state)

    def forward(
        self, actions: Tensor, pushed: Tensor | None = None, state: StateT | None = None
    ) -> tuple[Tensor, StateT]:
        """The same as `scan`."""
        return self.scan(actions, pushed, state)

    def _drive(self, state: StateT, hidden: Tensor, weight: Tensor, bias: Tensor) -> StateT:
        """`drive` after the checks."""
        controls = torch.nn.functional.linear(hidden, weight, bias)
        if not self.push_size:
            return self._step(state, controls, None)
        pushed = controls[:, self.action_size :]
        if self.push_activation != "identity":
            pushed = getattr(torch, self.push_activation)(pushed)
        return self._step(state, controls[:, : self.action_size], pushed)

    def _step_lstm(
        self, gates: Tensor, weights: LSTMWeights, memory: tuple[Tensor, Tensor], state: StateT
    ) -> tuple[tuple[Tensor, Tensor], StateT]:
        """`step_lstm` after the checks."""
        memory = lstm_cell(gates, state.reading, *memory, weights)
        return memory, self._drive(state, memory[0], weights.control, weights.control_bias)

    @abstractmethod
    def _step(self, state: StateT, actions: Tensor, pushed: Tensor | None) -> StateT:
        """`step` after the checks."""

    def _scan(self, state: StateT, actions: Tensor, pushed: Tensor | None) -> tuple[Tensor, StateT]:
        """`scan` after the checks, step by step."""
        readings = []
        for t in range(actions.shape[1]):
            state = self._step(state, actions[:, t], None if pushed is None else pushed[:, t])
            readings.append(state.reading)
        if not readings:
            return state.reading.new_zeros(state.batch_size, 0, self.reading_size), state
        return torch.stack(readings, dim=1), state

    def _run_lstm(
        self,
        inputs: Tensor,
        weights: LSTMWeights,
        memory: tuple[Tensor, Tensor],
        state: StateT,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], StateT]:
        """`run_lstm` after the checks, step by step."""
        hidden, readings = [], []
        for gates in inputs.unbind(1):
            memory, state = self._step_lstm(gates, weights, memory, state)
            hidden.append(memory[0])
            readings.append(state.reading)
        return torch.stack(hidden, dim=1), torch.stack(readings, dim=1), memory, state

    def _fits(self, state: Any) -> bool:
        """Whether a state, known to have a reading of the right size, is one of this stack."""
        return True

    def _belongs(self, state: Any) -> bool:
        """Whether a state is one of this stack, wherever it comes from."""
        reading = getattr(state, "reading", None)
        return (
            isinstance(state, State)
            and isinstance(reading, Tensor)
            and reading.dim() == 2
            and reading.shape[1] == self.reading_size
            and reading.is_floating_point()
            and reading.layout is torch.strided
            and self._fits(state)
        )

    def _check_state(self, state: Any) -> None:
        """Raise an error in one line unless the state belongs to this stack."""
        if not isinstance(state, State):
            raise NdstackError(f"a {type(state).__name__} given as a state, expected what start() gives")
        if not self._belongs(state):
            raise NdstackError(
                "the state belongs to a stack of other sizes than this "
                f"{type(self).__name__}({self.extra_repr()}); use start() of this one"
            )

    def _check(self, actions: Tensor, pushed: Tensor | None, leading: tuple[int, ...], state: State) -> None:
        """Raise an error in one line unless shapes and devices fit."""
        _check_tensors(actions, *(() if pushed is None else (pushed,)))
        if actions.shape != (*leading, self.action_size):
            raise NdstackError(
                f"actions of shape {list(actions.shape)} given, expected "
                f"{[*leading, self.action_size]}: {self._wants()}"
            )
        if self.push_size and pushed is None:
            raise NdstackError(f"no pushed vectors given: {self._wants()}")
        if pushed is not None and (not self.push_size or pushed.shape != (*leading, self.push_size)):
            raise NdstackError(
                f"pushed vectors of shape {list(pushed.shape)} given, expected "
                f"{[*leading, self.push_size] if self.push_size else None}: {self._wants()}"
            )
        for name, tensor in (("actions", actions), ("pushed vectors", pushed)):
            if tensor is not None and tensor.device != state.reading.device:
                raise NdstackError(
                    f"{name} are on {tensor.device}, but the state is on {state.reading.device}; "
                    "use state.to(device)"
                )

    def _fitting(
        self, inputs: Tensor, weights: LSTMWeights, memory: tuple[Tensor, Tensor], state: State
    ) -> tuple[Tensor, LSTMWeights, tuple[Tensor, Tensor]]:
        """What an LSTM gives, in the precision of the state; an error in one line unless all fits."""
        reading, units = state.reading, memory[0].shape[-1] if memory[0].dim() else 0
        controls = self.action_size + self.push_size
        device, dtype, convert = reading.device, reading.dtype, False
        tensors, batch = (*weights, *memory, inputs), reading.shape[0]
        expected = (
            *((4 * units, self.reading_size), (4 * units, units), (controls, units), (controls,)),
            *((batch, units), (batch, units), (batch, *inputs.shape[1:-1], 4 * units)),
        )
        for place, tensor in enumerate(tensors):
            if tensor.shape != expected[place]:
                name = (*(f"{name} weights" for name in LSTMWeights._fields), "h", "c", "inputs")[place]
                raise NdstackError(
                    f"{name} of shape {list(tensor.shape)} given, expected {list(expected[place])} "
                    f"for a batch of {batch} and {units} units: {self._wants()}"
                )
            if tensor.device != device:
                raise NdstackError(
                    f"the controller is on {tensor.device}, but the stack on {device}; use state.to(device)"
                )
            convert = convert or tensor.dtype != dtype
        if convert:
            weights = LSTMWeights(*(_real(tensor).to(dtype) for tensor in weights))
            inputs, memory = _real(inputs).to(dtype), (_real(memory[0]).to(dtype), _real(memory[1]).to(dtype))
        return inputs, weights, memory

    def _wants(self) -> str:
        """What the owner must supply, for error messages."""
        pushed = f"{self.push_size} pushed numbers" if self.push_size else "no pushed vector"
        return f"{type(self).__name__} takes {self.action_size} action logits and {pushed} a step"


def _check_tensors(*given: Any) -> None:
    """Raise an error in one line unless these are ordinary tensors."""
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise NdstackError(f"a {type(tensor).__name__} given, expected a tensor; use torch.as_tensor")
        if tensor.layout is not torch.strided:
            raise NdstackError(f"a tensor of layout {tensor.layout} given; use .to_dense()")


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        raise NdstackError(f"a tensor of {tensor.dtype} given, expected real numbers")
    return tensor
