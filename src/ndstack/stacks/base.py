"""The interface that all differentiable stacks share (section 3.2, the controller-stack interface).

A stack is driven by its owner, which is a recurrent controller or a layer of stack attention. At step t
the owner supplies raw *action logits* and, if the stack holds vectors, the vector to push; the stack
updates itself and offers a *reading* r_t of its top:

    s_t = Stack(s_{t-1}, a_t),      r_t = Reading(s_t).

What turns logits into weights (softmax, sigmoid, nothing) belongs to the stack. `step` and `scan` push
vectors as they are given, since stack attention and "push the hidden state" squash nothing; `drive`
applies `Stack.push_activation`, the function that the dissertation's RNNs use.

A stack is a `torch.nn.Module` without running state: what changes from step to step is a `State`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.runtime.autograd import opaque_in_own_precision
from ndstack.ops.runtime.tracing import Recordable
from ndstack.stacks.checks import check_tensors, real
from ndstack.stacks.state import Device, State

__all__ = ["AnyStack", "PushActivation", "Stack", "State", "StateT"]

PushActivation = Literal["sigmoid", "tanh", "identity"]
"""What a learned vector goes through before it is pushed."""


StateT = TypeVar("StateT", bound=State)

_BUILT_ON = {"log_weights": ("_drive",), "_step": ("_scan", "_drive")}
"""If a subclass overrides the key, inherited faster versions of these methods would still make the old step,
so they are reset to the generic ones."""


class Stack(Recordable, torch.nn.Module, ABC, Generic[StateT]):
    """A differentiable stack.

    Attributes:
        action_size: how many action logits the owner supplies at each step.
        push_size: how many numbers the pushed vector has; 0 if the stack holds no vectors.
        reading_size: how many numbers a reading has.
        push_activation: what the dissertation's RNNs apply to a learned pushed vector. `drive` applies it;
            `step` and `scan` push what they are given.

    Subclasses set the three sizes, and `push_activation` if it is not the sigmoid. They define `start`,
    `_step` and, where they can do better than the versions here, `_scan` and `_drive`; and `_fits`, if what
    they carry has to be of certain sizes. The public methods check shapes and states and convert their
    arguments to the dtype of the state. All computation uses that dtype, even inside `torch.autocast`. A
    controller that can run with a stack in one operation is registered in `ndstack.nn.fused`.
    """

    action_size: int
    push_size: int
    reading_size: int
    push_activation: PushActivation = "sigmoid"

    def __init_subclass__(cls, **options: object) -> None:
        """Make sure that a class that changes what a step is inherits no faster version of the old step."""
        super().__init_subclass__(**options)
        own = vars(cls)
        older = {name for changed, names in _BUILT_ON.items() if changed in own for name in names}
        for name in older - own.keys():
            setattr(cls, name, getattr(Stack, name))

    @abstractmethod
    def start(self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None) -> StateT:
        """Return the stacks before the first step; `state.reading` is r_0.

        Args:
            batch_size: the number of stacks.
            dtype: the dtype of the readings; torch's default if not given.
            device: the device of the stacks; torch's default if not given.
        """

    @opaque_in_own_precision
    def step(self, state: StateT, actions: Tensor, pushed: Tensor | None = None) -> StateT:
        """Make one step. The new reading is `new_state.reading`; the old state stays valid.

        Args:
            state: the stacks so far.
            actions: [B, action_size], raw logits.
            pushed: [B, push_size]; None if and only if `push_size` is 0.
        """
        self.check_state(state)
        self._check(actions, pushed, (state.batch_size,), state)
        dtype = state.reading.dtype
        if actions.dtype != dtype:
            actions = real(actions).to(dtype)
        if pushed is not None and pushed.dtype != dtype:
            pushed = real(pushed).to(dtype)
        return self._step(state, actions, pushed)

    @property
    def scans_in_graphs(self) -> bool:
        """Whether there is a `scan_in_graph`."""
        return False

    def scan_in_graph(self, actions: Tensor, pushed: Tensor | None) -> tuple[Tensor, StateT]:
        """Do what `scan` does from the start, on a CPU, where `torch.compile` traces it."""
        raise NotImplementedError

    @property
    def idle(self) -> tuple[float, ...]:
        """Logits of a step that changes nothing; empty if there is no `scan_in_graph`."""
        return ()

    @property
    def control_size(self) -> int:
        """How wide the layer that drives the stack is: `action_size + push_size`."""
        return self.action_size + self.push_size

    @opaque_in_own_precision
    def drive(self, state: StateT, hidden: Tensor, weight: Tensor, bias: Tensor) -> StateT:
        """Make one step from the hidden state of a controller, with the layer between the two.

        This is equivalent to a linear layer whose output is split into action logits and the vector to push,
        in this order, followed by `push_activation` on the latter and by `step`, but it is faster if the
        stack can do everything in one operation.

        Args:
            state: the stacks so far.
            hidden: [B, H].
            weight: [control_size, H].
            bias: [control_size].
        """
        self.check_state(state)
        check_tensors(hidden, weight, bias)
        reading, size = state.reading, self.control_size
        units = hidden.shape[-1] if hidden.dim() else 0
        if (
            hidden.shape != (reading.shape[0], units)
            or weight.shape != (size, units)
            or bias.shape != (size,)
        ):
            raise NdstackError(
                f"hidden state of shape {list(hidden.shape)}, weight of shape {list(weight.shape)} "
                f"and bias of shape {list(bias.shape)} given, expected "
                f"[{reading.shape[0]}, units], [{size}, units] and [{size}]: {self.needs()}"
            )
        device = reading.device
        if hidden.device != device or weight.device != device or bias.device != device:
            raise NdstackError(
                f"the hidden state is on {hidden.device} and the layer on {weight.device} and {bias.device}, "
                f"but the stack is on {device}; use state.to(device)"
            )
        if hidden.dtype != reading.dtype:
            hidden = real(hidden).to(reading.dtype)
        if weight.dtype != reading.dtype:
            weight = real(weight).to(reading.dtype)
        if bias.dtype != reading.dtype:
            bias = real(bias).to(reading.dtype)
        return self._drive(state, hidden, weight, bias)

    @opaque_in_own_precision
    def scan(
        self, actions: Tensor, pushed: Tensor | None = None, state: StateT | None = None
    ) -> tuple[Tensor, StateT]:
        """Make a whole sequence of steps, of any length, 0 included.

        Args:
            actions: [B, n, action_size], raw logits.
            pushed: [B, n, push_size]; None if and only if `push_size` is 0.
            state: the stacks to resume from; fresh ones, in float32 or better, if not given.

        Returns:
            The readings after each of the n steps, [B, n, reading_size], and the last state.
        """
        check_tensors(actions)
        if actions.dim() != 3:
            raise NdstackError(
                f"actions of shape {list(actions.shape)} given, expected [batch, length, {self.action_size}]"
            )
        if state is None:
            dtype = torch.promote_types(real(actions).dtype, torch.float32)
            state = self.start(actions.shape[0], dtype=dtype, device=actions.device)
        self.check_state(state)
        self._check(actions, pushed, (state.batch_size, actions.shape[1]), state)
        dtype = state.reading.dtype
        pushed = None if pushed is None else real(pushed).to(dtype)
        return self._scan(state, real(actions).to(dtype), pushed)

    def forward(
        self, actions: Tensor, pushed: Tensor | None = None, state: StateT | None = None
    ) -> tuple[Tensor, StateT]:
        """Do the same as `scan`."""
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

    def _fits(self, state: object) -> bool:
        """Return whether a state, known to have a reading of the right size, is one of this stack."""
        return True

    def _belongs(self, state: object) -> bool:
        """Return whether a state is one of this stack, wherever it comes from."""
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

    def check_state(self, state: object) -> None:
        """Raise an `NdstackError` unless the state belongs to this stack."""
        if not isinstance(state, State):
            raise NdstackError(f"a {type(state).__name__} given as a state, expected what start() gives")
        if not self._belongs(state):
            raise NdstackError(
                "the state belongs to a stack of other sizes than this "
                f"{type(self).__name__}({self.extra_repr()}); use start() of this one"
            )

    def _check(self, actions: Tensor, pushed: Tensor | None, leading: tuple[int, ...], state: State) -> None:
        """Raise an `NdstackError` unless shapes and devices fit."""
        check_tensors(actions, *(() if pushed is None else (pushed,)))
        if actions.shape != (*leading, self.action_size):
            raise NdstackError(
                f"actions of shape {list(actions.shape)} given, expected "
                f"{[*leading, self.action_size]}: {self.needs()}"
            )
        if self.push_size and pushed is None:
            raise NdstackError(f"no pushed vectors given: {self.needs()}")
        if pushed is not None and (not self.push_size or pushed.shape != (*leading, self.push_size)):
            raise NdstackError(
                f"pushed vectors of shape {list(pushed.shape)} given, expected "
                f"{[*leading, self.push_size] if self.push_size else None}: {self.needs()}"
            )
        for name, tensor in (("actions", actions), ("pushed vectors", pushed)):
            if tensor is not None and tensor.device != state.reading.device:
                raise NdstackError(
                    f"{name} are on {tensor.device}, but the state is on {state.reading.device}; "
                    "use state.to(device)"
                )

    def needs(self) -> str:
        """Return what the owner must supply, for error messages."""
        pushed = f"{self.push_size} pushed numbers" if self.push_size else "no pushed vector"
        return f"{type(self).__name__} takes {self.action_size} action logits and {pushed} per step"


AnyStack = Stack[Any]
"""A stack of any kind."""
