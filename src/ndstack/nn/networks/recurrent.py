"""A recurrent controller with a stack: the interface of section 3.2.

    (h_t, c_t) = LSTM((h_{t-1}, c_{t-1}), [x_t; r_{t-1}]),   a_t = Actions(h_t),   v_t = Pushed(h_t),
    s_t = Stack(s_{t-1}, a_t, v_t),   r_t = Reading(s_t).

With several layers the top one drives the stack, and the first one gets the reading. Options of section
11.2.2: layers between the reading and the controller, the reading beside the hidden state in the output, and
the reading left unnormalised.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag, check_size
from ndstack.nn.fused import LSTMWeights, find, run_lstm
from ndstack.nn.networks import controllers, graphs, unmodified
from ndstack.nn.networks.attention import check_dropout
from ndstack.nn.networks.backbone import Backbone, check_dtype, check_input
from ndstack.nn.networks.controllers import ControllerState, make_controller
from ndstack.nn.networks.options import check_recurrent, unnormalized
from ndstack.nn.networks.padding import Lengths, at_ends, check_lengths_in_graph, padding_mask, without
from ndstack.nn.networks.ragged import RaggedState, UnreadState, versions_in_graph
from ndstack.nn.networks.sharding import settled
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.torch_internals import first_parameter
from ndstack.ops.runtime.tracing import constant, refuse_recording, traceable, untraced
from ndstack.settings.model import DEFAULTS
from ndstack.stacks import State
from ndstack.stacks.base import AnyStack
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class RNNState(NetworkState):
    """What a `StackRNN` carries from step to step."""

    hidden: tuple[Tensor, ...]
    """h_t of each layer, [B, H]."""

    cells: tuple[Tensor, ...]
    """c_t of each layer of an LSTM, [B, H]; empty for other controllers."""

    stack: State | None
    """The stacks, if there are any."""

    @property
    def traceable(self) -> bool:
        """Whether `torch.compile` can look into steps from here."""
        return self.stack is not None and self.stack.traceable


class Recurrent(Backbone):
    """A controller and a stack that read in one direction, batch first; for the arguments see `StackRNN`."""

    held: dict[str, Any] | None = None
    """The weights of the controller, for graphs of `torch.compile`; None if it has been replaced."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "controller":
            self.__dict__.pop("held", None)
        super().__setattr__(name, value)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        stack: AnyStack | None,
        num_layers: int = 1,
        controller: str = DEFAULTS.controller,
        *,
        push_hidden: bool = False,
        reading_layers: int = DEFAULTS.reading_layers,
        output_reading: bool = DEFAULTS.output_reading,
        normalize_reading: bool = DEFAULTS.normalize_reading,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        input_size = check_size("input_size", input_size, 0)
        hidden_size, num_layers = check_size("hidden_size", hidden_size), check_size("num_layers", num_layers)
        reading_layers = check_size("reading_layers", reading_layers, 0)
        push_hidden = check_flag("push_hidden", push_hidden)
        output_reading = check_flag("output_reading", output_reading)
        check_recurrent(hidden_size, stack, push_hidden, reading_layers, output_reading)
        self.dropout = check_dropout(dropout)
        if not check_flag("normalize_reading", normalize_reading):
            stack = unnormalized(stack)
        reading_size = 0 if stack is None else stack.reading_size
        read_size = hidden_size if reading_layers else reading_size
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.output_size = hidden_size + (reading_size if output_reading else 0)
        self.controller_kind, self.push_hidden = controller, push_hidden
        self.reading_layers, self.output_reading = reading_layers, output_reading
        self.normalize_reading = normalize_reading
        self.controller = make_controller(
            controller, input_size + read_size, hidden_size, num_layers, dropout
        )
        self.stack = stack
        self.actions: torch.nn.Linear | None = None
        self.pushed: torch.nn.Linear | None = None
        self.reader: torch.nn.Sequential | None = None
        if stack is not None:
            self.actions = torch.nn.Linear(hidden_size, stack.action_size)
            if stack.push_size and not push_hidden:
                self.pushed = torch.nn.Linear(hidden_size, stack.push_size)
        if reading_layers:
            sizes = [reading_size, *[hidden_size] * reading_layers]
            layers = [torch.nn.Linear(*pair) for pair in itertools.pairwise(sizes)]
            self.reader = torch.nn.Sequential(*(part for one in layers for part in (one, torch.nn.Tanh())))

    def arguments(self) -> dict[str, object]:
        """Return the arguments that make the same network again."""
        names = ("input_size", "hidden_size", "num_layers", "push_hidden", "reading_layers", "output_reading")
        later = {"dropout": self.dropout} if self.dropout else {}  # older files have no dropout
        return {name: getattr(self, name) for name in names} | {
            "stack": getattr(self.stack, "original", self.stack),
            "controller": self.controller_kind,
            "normalize_reading": self.normalize_reading,
            **later,
        }

    def extra_repr(self) -> str:
        """Return what `print` shows besides the parts."""
        names = ("input_size", "hidden_size", "push_hidden", "reading_layers", "output_reading")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    def start(self, batch_size: int, dtype: torch.dtype | None = None, device: Device = None) -> NetworkState:
        """Return hidden states and memory cells of zeros, and fresh stacks."""
        return self._start(check_size("batch_size", batch_size, 0), dtype, device)

    def _start(self, batch_size: int, dtype: torch.dtype | None, device: Device) -> RNNState:
        like = first_parameter(self.controller)
        dtype, device = dtype or like.dtype, device or like.device
        zeros = (torch.zeros(batch_size, self.hidden_size, dtype=dtype, device=device),) * self.num_layers
        stack = None if self.stack is None else self.stack.start(batch_size, dtype=dtype, device=device)
        return RNNState(zeros, zeros if controllers.has_cells(self.controller) else (), stack)

    def initial_output(self, state: NetworkState) -> Tensor:
        """Return h_0 and, with `output_reading`, r_0: [B, output_size]."""
        own = self._own(state)
        if own.stack is None or not self.output_reading:
            return own.hidden[-1]
        return torch.cat([own.hidden[-1], own.stack.reading], dim=1)

    def forward(
        self, x: Tensor, state: NetworkState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, NetworkState]:
        """Read strings, [B, n, input_size], or continue from a state; see `StackRNN`."""
        if torch.compiler.is_dynamo_compiling():
            if self._enters_graph(x, state, lengths):
                return self._read_in_graph(x) if lengths is None else self._read_padded_in_graph(x, lengths)
            if lengths is not None or (self.stack is not None and not traceable(state)):
                return untraced()(self.forward, x, state, lengths)
        if lengths is None and not isinstance(state, RaggedState):
            return self._read(x, state)
        return self.read_padded(x, state, lengths)

    def _read(self, x: Tensor, state: NetworkState | None) -> tuple[Tensor, RNNState]:
        """Read strings of one length, [B, n, input_size]."""
        first = self._ready(x, state)
        if self.stack is None:
            output, memory = controllers.run_controller(
                self.controller, x, ControllerState(first.hidden, first.cells)
            )
            return output, RNNState(*memory, None)
        if self.in_one_operation:
            own = first.hidden[0], first.cells[0]
            hidden, readings, (last, cell), stack = run_lstm(self.stack, *self._lstm(x), own, first.stack)
            return self._shown(x, hidden, readings), RNNState((last,), (cell,), stack)
        hidden, readings, after = self._by_steps(x, first)
        return self._shown(x, hidden, readings), after

    def _enters_graph(self, x: object, state: NetworkState | None, lengths: Lengths | None) -> bool:
        """Return whether `torch.compile`, which is tracing, makes this call a part of its graph."""
        if state is not None or not constant()(graphs.recurrent, self):
            return False  # this is asked first, since whatever else is asked has to be guarded
        assert self.actions is not None
        if not graphs.fits(x, self.input_size, self.actions.weight):
            return False
        return lengths is None or graphs.lengths_fit(lengths, x)

    def _read_in_graph(self, x: Tensor) -> tuple[Tensor, RNNState]:
        """Do what `_read` does from the start."""
        assert self.stack is not None
        assert self.held is not None
        given = self.stack, *self._gates(x, *self.held.values())
        hidden, readings, (last, cell), stack = find("lstm", self.stack).run_in_graph(*given)
        return self._shown(x, hidden, readings), RNNState((last,), (cell,), stack)

    def _read_padded_in_graph(self, x: Tensor, given: Lengths) -> tuple[Tensor, UnreadState]:
        """Do what `read_padded` does from the start, whatever the lengths are."""
        assert isinstance(given, Tensor)
        lengths = check_lengths_in_graph(given, *x.shape[:2])
        padding, derivatives = padding_mask(lengths, x.shape[1], x.device), torch.is_grad_enabled()
        x = without(padding, x)
        output, _ = self._read_in_graph(x)
        weights = self.weights()
        assert weights is not None
        tops = at_ends(output[:, :, : self.hidden_size], lengths, x.new_zeros(x.shape[0], self.hidden_size))
        state = UnreadState((tops,), self, x, lengths, versions_in_graph(weights), derivatives)
        return without(padding, output), state

    def weights(self) -> list[Tensor] | None:
        """Return all weights, where they are held for graphs; None if the controller has been replaced."""
        if self.held is None or self.actions is None:
            return None
        layers = [layer for layer in (self.actions, self.pushed, self.stack) if layer is not None]
        return [*self.held.values(), *(weight for layer in layers for weight in layer.parameters())]

    def read_later(self, x: Tensor, lengths: list[int], hidden: tuple[Tensor, ...]) -> RaggedState:
        """Return the state at the ends of strings that begin here."""
        return self._read_again(x, self._start(x.shape[0], x.dtype, x.device), lengths, hidden)

    def _read_ragged(
        self, x: Tensor, state: NetworkState | None, lengths: list[int]
    ) -> tuple[Tensor, NetworkState]:
        """Read strings of different lengths.

        They are read a second time for their final states only if controller and stack are one operation, or
        if a controller without a stack was replaced or has hooks.
        """
        first = self._ready(x, state)
        if self.stack is None and self._untouched(self.controller):
            memory = ControllerState(first.hidden, first.cells)
            output, memory = controllers.run_padded(self.controller, x, memory, lengths)
            return output, RNNState(*memory, None)
        if self.stack is None or self.in_one_operation:
            output, _ = self._read(x, first)
            tops = at_ends(output[:, :, : self.hidden_size], lengths, first.hidden[-1])
            return output, self._read_again(x, first, lengths, (tops,) if self.num_layers == 1 else None)
        passed: dict[int, RNNState] = dict.fromkeys(lengths, first)
        hidden, readings, _ = self._by_steps(x, first, passed)
        return self._shown(x, hidden, readings), RaggedState.later(
            lengths,
            lambda rows, length: passed[length].select(rows),
            self,
            tuple(
                torch.stack([passed[length].hidden[layer][row] for row, length in enumerate(lengths)])
                for layer in range(self.num_layers)
            ),
        )

    def _ready(self, x: Tensor, state: NetworkState | None) -> RNNState:
        """Return the state to begin with, after checks of input and state."""
        own = None if state is None else self._own(state)
        check_input(x, self.input_size, None if own is None else own.batch_size)
        refuse_recording()
        check_dtype(x, self.controller)
        return self._start(x.shape[0], x.dtype, x.device) if own is None else self._like(own, x)

    def _shown(self, x: Tensor, hidden: Tensor, readings: Tensor) -> Tensor:
        return (torch.cat([hidden, readings], dim=2) if self.output_reading else hidden).to(x.dtype)

    @property
    def in_one_operation(self) -> bool:
        """Whether controller and stack are run together (`ndstack.nn.fused`).

        This is False if a part of the network was replaced or has hooks, because such a part must be called
        at every step.
        """
        single = self.controller_kind == "lstm" and self.num_layers == 1
        simple = single and not self.reading_layers and not self.push_hidden
        return simple and self.stack is not None and self._drives and self._untouched(self.controller)

    @property
    def _drives(self) -> bool:
        """Whether the weights of the layers can be used directly, without calling the layers."""
        layers = [layer for layer in (self.actions, self.pushed) if layer is not None]
        return not unmodified.hooked(self.stack) and all(map(unmodified.is_linear, layers))

    def _untouched(self, controller: torch.nn.Module) -> TypeGuard[torch.nn.RNNBase]:
        stack = self.stack
        read_size = 0 if stack is None else stack.reading_size
        sizes = self.hidden_size if self.reading_layers else read_size
        return unmodified.is_recurrent(controller, self.input_size + sizes, self.hidden_size, self.num_layers)

    def _own(self, state: object) -> RNNState:
        if not isinstance(state, RNNState):
            given = " (h and c, perhaps)" if isinstance(state, tuple) else ""
            hint = "; the lengths of strings are given by name, lengths=" if isinstance(state, Tensor) else ""
            raise NdstackError(
                f"a {type(state).__name__}{given} given as the state, expected the RNNState of start() or "
                f"of an earlier call{hint}"
            )
        cells = self.num_layers if controllers.has_cells(self.controller) else 0
        held: tuple[object, object] = (state.hidden, state.cells)  # a state from a file may be malformed
        parts = [part for part in held if isinstance(part, tuple)]
        tensors = [tensor for part in parts for tensor in part]
        shape = (state.batch_size, self.hidden_size)
        if (
            [len(part) for part in parts] != [self.num_layers, cells]
            or not all(isinstance(t, Tensor) and t.shape == shape and t.is_floating_point() for t in tensors)
            or (state.stack is None) != (self.stack is None)
        ):
            raise NdstackError(
                f"the state is that of another network, expected {self.num_layers} layers of "
                f"{self.hidden_size} units {'with' if self.stack else 'without'} a stack; use start()"
            )
        return state

    def _like(self, state: RNNState, x: Tensor) -> RNNState:
        """Return what the controller carries, in the dtype of its input; it must be on the same device."""
        memory = (*state.hidden, *state.cells)
        if any(tensor.device != x.device for tensor in memory):
            raise NdstackError(
                f"the input is on {x.device}, but the state on {memory[0].device}; use state.to(device)"
            )
        if all(tensor.dtype == x.dtype for tensor in memory) or self.in_one_operation:  # which converts
            return state
        hidden, cells = (tuple(tensor.to(x.dtype) for tensor in part) for part in (state.hidden, state.cells))
        return RNNState(hidden, cells, state.stack)

    def _controls(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the layer that drives the stack: actions, then the vector to push."""
        assert self.actions is not None
        if self.pushed is None:
            return settled(self.actions.weight), settled(self.actions.bias)
        weight = torch.cat([self.actions.weight, self.pushed.weight])
        return weight, torch.cat([self.actions.bias, self.pushed.bias])

    def _lstm(self, x: Tensor) -> tuple[Tensor, LSTMWeights]:
        """Return what the input contributes to the gates, [B, n, 4H], and the weights, for `run_lstm`."""
        assert isinstance(self.controller, torch.nn.RNNBase)
        return self._gates(x, *self.controller.all_weights[0])

    def _gates(
        self, x: Tensor, input_weight: Tensor, hidden_weight: Tensor, input_bias: Tensor, hidden_bias: Tensor
    ) -> tuple[Tensor, LSTMWeights]:
        x_weight, reading_weight = input_weight[:, : self.input_size], input_weight[:, self.input_size :]
        gates = torch.nn.functional.linear(x, x_weight, input_bias + hidden_bias)
        return gates, LSTMWeights(settled(reading_weight), settled(hidden_weight), *self._controls())

    def _by_steps(
        self, x: Tensor, state: RNNState, passed: dict[int, RNNState] | None = None
    ) -> tuple[Tensor, Tensor, RNNState]:
        """Return the hidden states [B, n, H], the readings [B, n, R] and the last state, step by step.

        `passed` maps numbers of steps to states; each entry is replaced by the state after that many steps.
        """
        assert self.stack is not None
        advance, drives = self._stepper(x), self._drives and not self.push_hidden
        controls = self._controls() if drives else ()
        memory, stack = ControllerState(state.hidden, state.cells), state.stack
        self.stack.check_state(stack)  # before the controller sees its reading
        assert stack is not None
        hidden, readings = [], []
        for t in range(x.shape[1]):
            reading = stack.reading.to(x.dtype)  # a stack may be more precise than the network
            reading = reading if self.reader is None else self.reader(reading)
            memory = advance(t, reading, memory)
            top = memory.hidden[-1]
            stack = self.stack.drive(stack, top, *controls) if drives else self._step_stack(stack, top)
            hidden.append(top)
            readings.append(stack.reading)
            if passed is not None and t + 1 in passed:
                passed[t + 1] = RNNState(*memory, stack)
        if not hidden:
            nothing = [
                x.new_zeros(x.shape[0], 0, size) for size in (self.hidden_size, self.stack.reading_size)
            ]
            return nothing[0], nothing[1], state
        return torch.stack(hidden, dim=1), torch.stack(readings, dim=1), RNNState(*memory, stack)

    def _stepper(self, x: Tensor) -> Callable[[int, Tensor, ControllerState], ControllerState]:
        """Return a function of a step's number, the reading and the memory that makes the step."""
        controller = self.controller
        if not self._untouched(controller):
            return lambda t, reading, memory: controllers.call_controller(
                controller, torch.cat([x[:, t], reading], dim=1), memory
            )
        inputs, weights = controllers.prepare_steps(controller, x, controller.input_size - self.input_size)
        return lambda t, reading, memory: controllers.step_controller(
            controller, weights, inputs[t], reading, memory
        )

    def _step_stack(self, state: State, top: Tensor) -> State:
        """Make one step of the stack, from what the layers give when they are called."""
        assert self.stack is not None
        assert self.actions is not None
        pushed = top if self.push_hidden else None
        if self.pushed is not None:
            pushed = self.pushed(top)
            if self.stack.push_activation != "identity":
                pushed = getattr(torch, self.stack.push_activation)(pushed)
        new: State
        if not unmodified.hooked(self.stack):
            new = self.stack.step(state, self.actions(top), pushed)
            return new
        vectors = None if pushed is None else pushed[:, None]
        _, new = self.stack(self.actions(top)[:, None], vectors, state)
        return new
