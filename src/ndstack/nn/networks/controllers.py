"""Recurrent controllers (section 3.2): the networks of torch, run over a sequence or stepped.

The parameters live in `torch.nn.LSTM`, `torch.nn.GRU` or `torch.nn.RNN`, with two biases per gate, as in
torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ndstack import register
from ndstack.errors import NdstackError
from ndstack.nn.networks.sharding import settled
from ndstack.ops.lstm import lstm_cell
from ndstack.ops.runtime.tracing import opaque

_KINDS: dict[str, Callable[..., torch.nn.RNNBase]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn": torch.nn.RNN,
}
register.controller.reserve(_KINDS)


class ControllerState(NamedTuple):
    """What a controller remembers: h_t and, of an LSTM, c_t, [B, H] for each layer."""

    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]


def make_controller(
    kind: str, input_size: int, hidden_size: int, num_layers: int, dropout: float = 0.0
) -> torch.nn.Module:
    """Return a controller of the given kind, batch first; registered ones are made with the three sizes."""
    if not isinstance(kind, str):
        raise NdstackError(f"controller is {kind!r}, expected the name of one: {', '.join(_KINDS)}")
    own = _KINDS.get(kind)
    if own is not None:
        return own(input_size, hidden_size, num_layers, batch_first=True, dropout=dropout)
    make = register.controller.find(kind)
    if make is None:
        known = ", ".join((*_KINDS, *register.controller.names))
        raise NdstackError(
            f"there is no controller called {kind!r}; there are {known}; {register.controller.hint}"
        )
    if dropout:
        raise NdstackError(
            f"dropout={dropout} given for {kind}, a registered controller, expected {' or '.join(_KINDS)}"
        )
    made = make(input_size, hidden_size, num_layers)
    if not isinstance(made, torch.nn.Module):
        raise NdstackError(f"{kind} was registered as a controller, but it makes {made!r}, not a module")
    return made


def has_cells(controller: torch.nn.Module) -> bool:
    """Return whether it remembers c_t beside h_t: an LSTM, or a registered controller that says so."""
    return isinstance(controller, torch.nn.LSTM) or bool(getattr(controller, "has_cells", False))


def run_controller(
    controller: torch.nn.Module, x: Tensor, memory: ControllerState
) -> tuple[Tensor, ControllerState]:
    """Run a whole sequence [B, n, input_size] without a stack: h_1..h_n, [B, n, H], and the last memory."""
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], 0, memory.hidden[0].shape[1]), memory
    hidden = torch.stack(memory.hidden)
    if not memory.cells:
        output, last = controller(x, hidden)
        return output, ControllerState(last.unbind(0), ())
    cells = torch.stack(memory.cells)
    if torch.is_autocast_enabled(x.device.type) and not _has_mixed_lstm(x.device.type):
        dtype = next(controller.parameters()).dtype
        with torch.autocast(x.device.type, enabled=False):
            output, (last, cells) = controller(x.to(dtype), (hidden.to(dtype), cells.to(dtype)))
    else:
        output, (last, cells) = controller(x, (hidden, cells))
    return output, ControllerState(last.unbind(0), cells.unbind(0))


@opaque
def _has_mixed_lstm(device: str) -> bool:
    """Return whether torch's LSTM runs on this device in the precision of autocast."""
    return device != "cpu" or _has_lstm(torch.get_autocast_dtype(device))


@functools.cache
def _has_lstm(dtype: torch.dtype) -> bool:
    """Return whether it does on this CPU: oneDNN has no such LSTM for CPUs without AVX-512.

    Torch is asked once; its random numbers are not touched.
    """
    with torch.random.fork_rng(devices=[]):
        lstm = torch.nn.LSTM(1, 1)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            lstm(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True


def run_padded(
    controller: torch.nn.RNNBase, x: Tensor, memory: ControllerState, lengths: list[int]
) -> tuple[Tensor, ControllerState]:
    """Do the same with strings of different lengths, filled up on the right: the memory at the end of each.

    Torch packs no empty strings, so these read one vector, and their memory stays what it was.
    """
    packed = pack_padded_sequence(
        x, torch.tensor(lengths).clamp(min=1), batch_first=True, enforce_sorted=False
    )
    hidden = torch.stack(memory.hidden)
    cells = torch.stack(memory.cells) if memory.cells else None
    output, last = controller(packed, hidden if cells is None else (hidden, cells))
    empty = torch.tensor(lengths, device=x.device)[:, None] == 0
    before, after = ((hidden,), (last,)) if cells is None else ((hidden, cells), last)
    parts = [torch.where(empty, old, new).unbind(0) for old, new in zip(before, after, strict=True)]
    return pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0], ControllerState(
        parts[0], parts[1] if len(parts) > 1 else ()
    )


def call_controller(controller: torch.nn.Module, x: Tensor, memory: ControllerState) -> ControllerState:
    """Make one step of a controller by calling it, as a network of torch, with the input [B, input_size]."""
    return run_controller(controller, x[:, None], memory)[1]


def prepare_steps(
    controller: torch.nn.RNNBase, x: Tensor, reading_size: int
) -> tuple[tuple[Tensor, ...], list[list[Tensor]]]:
    """Compute what `step_controller` takes, for all steps: an input for each, and the weights of each layer.

    Of an LSTM, the inputs are what x_t contributes to the gates of the first layer, biases included.

    Args:
        controller: whose input is x_t and the reading, side by side.
        x: [B, n, controller.input_size - reading_size].
        reading_size: of what is read at each step.
    """
    layers: list[list[Tensor]] = [[*map(settled, own)] for own in controller.all_weights]
    if not has_cells(controller):
        return x.unbind(1), layers
    weights = [[by_x, by_hidden, biases[0] + biases[1]] for by_x, by_hidden, *biases in layers]
    by_input, by_hidden, bias = weights[0]
    size = by_input.shape[1] - reading_size
    weights[0] = [by_input[:, size:], by_hidden, bias]
    return torch.nn.functional.linear(x, by_input[:, :size], bias).unbind(1), weights


def step_controller(
    controller: torch.nn.RNNBase,
    weights: Sequence[Sequence[Tensor]],
    given: Tensor,
    reading: Tensor,
    memory: ControllerState,
) -> ControllerState:
    """Make one step.

    Args:
        controller: says which kind of cell.
        weights: of each layer, from `prepare_steps`.
        given: the input of this step, from `prepare_steps`.
        reading: [B, reading_size].
        memory: before the step.
    """
    hidden: list[Tensor] = []
    cells: list[Tensor] = []
    dropped = controller.dropout if controller.training else 0.0
    x = reading if has_cells(controller) else torch.cat([given, reading], dim=1)
    for layer, own in enumerate(weights):
        if has_cells(controller):
            by_x, by_hidden, bias = own
            added = bias if layer else given
            x, cell = lstm_cell(added, x, memory.hidden[layer], memory.cells[layer], by_x, by_hidden)
            cells.append(cell)
        elif isinstance(controller, torch.nn.GRU):
            x = torch.gru_cell(x, memory.hidden[layer], *own)
        else:
            x = torch.rnn_tanh_cell(x, memory.hidden[layer], *own)
        hidden.append(x)
        if dropped and layer + 1 < len(weights):
            x = torch.nn.functional.dropout(x, dropped)
    return ControllerState(tuple(hidden), tuple(cells))
