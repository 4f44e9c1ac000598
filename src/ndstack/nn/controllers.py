"""Recurrent controllers (section 3.2): the networks of torch, run over a sequence or stepped.

The parameters live in `torch.nn.LSTM`, `torch.nn.GRU` or `torch.nn.RNN`, two biases a gate as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.kernels.lstm_cell import cell as lstm_cell

ControllerKind = Literal["lstm", "gru", "rnn"]

_KINDS: dict[str, type[torch.nn.RNNBase]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn": torch.nn.RNN,
}


class Memory(NamedTuple):
    """What a controller remembers: h_t and, of an LSTM, c_t, [B, H] for each layer."""

    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]


def make_controller(kind: str, input_size: int, hidden_size: int, num_layers: int) -> torch.nn.RNNBase:
    """A controller of the given kind, batch first."""
    if kind not in _KINDS:
        raise NdstackError(f"there is no controller called {kind!r}; expected one of {', '.join(_KINDS)}")
    for name, value in (("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value < 1:
            raise NdstackError(f"{name} is {value}, expected 1 or more")
    return _KINDS[kind](input_size, hidden_size, num_layers, batch_first=True)  # type: ignore[arg-type]


def has_cells(controller: torch.nn.RNNBase) -> bool:
    """Whether it remembers c_t beside h_t."""
    return isinstance(controller, torch.nn.LSTM)


def run(controller: torch.nn.RNNBase, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
    """A whole sequence [B, n, input_size] without a stack: h_1..h_n, [B, n, H], and the last memory."""
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], 0, controller.hidden_size), memory
    hidden = torch.stack(memory.hidden)
    if has_cells(controller):
        output, (last, cells) = controller(x, (hidden, torch.stack(memory.cells)))
        return output, Memory(last.unbind(0), cells.unbind(0))
    output, last = controller(x, hidden)
    return output, Memory(last.unbind(0), ())


def prepare(
    controller: torch.nn.RNNBase, x: Tensor, reading_size: int
) -> tuple[tuple[Tensor, ...], list[list[Tensor]]]:
    """What `step` wants, computed once for all steps: an input for each, and the weights of each layer.

    Of an LSTM, the inputs are what x_t contributes to the gates of the first layer, biases included.

    Args:
        controller: whose input is x_t and the reading, side by side.
        x: [B, n, controller.input_size - reading_size].
        reading_size: of what is read at each step.
    """
    layers: list[list[Tensor]] = controller.all_weights  # type: ignore[assignment]
    if not has_cells(controller):
        return x.unbind(1), layers
    weights = [[by_x, by_hidden, biases[0] + biases[1]] for by_x, by_hidden, *biases in layers]
    by_input, by_hidden, bias = weights[0]
    size = by_input.shape[1] - reading_size
    weights[0] = [by_input[:, size:], by_hidden, bias]
    return torch.nn.functional.linear(x, by_input[:, :size], bias).unbind(1), weights


def step(
    controller: torch.nn.RNNBase,
    weights: Sequence[Sequence[Tensor]],
    given: Tensor,
    reading: Tensor,
    memory: Memory,
) -> Memory:
    """One step.

    Args:
        controller: says which kind of cell.
        weights: of each layer, from `prepare`.
        given: the input of this step, from `prepare`.
        reading: [B, reading_size].
        memory: before the step.
    """
    hidden: list[Tensor] = []
    cells: list[Tensor] = []
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
    return Memory(tuple(hidden), tuple(cells))
