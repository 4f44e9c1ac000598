"""Programs by functions on whole sequences in float64: what comes out of them must be right."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ndstack.functional import nondeterministic, stratification, superposition
from ndstack.nn.networks.unnormalized import Unnormalized
from ndstack.ops.nondeterministic import reference
from ndstack.stacks import Nondeterministic, Several, Stack, Stratification, Superposition

Parameters = dict[int, Tensor]
"""Float64 twins of parameters and of given tensors, by the id of the original."""


@dataclasses.dataclass(frozen=True)
class Past:
    """All that a stack was given: logits [B, t, A] and vectors [B, t, m]; and whether its bottom is cut."""

    actions: Tensor
    pushed: Tensor
    cut: bool = False

    def and_then(self, actions: Tensor, pushed: Tensor) -> Past:
        return Past(torch.cat([self.actions, actions], 1), torch.cat([self.pushed, pushed], 1), self.cut)

    def detach(self) -> Past:
        return Past(self.actions.detach(), self.pushed.detach(), True)

    def select(self, rows: list[int]) -> Past:
        return Past(self.actions[rows], self.pushed[rows], self.cut)


def nothing(stack: Stack[Any], batch: int) -> Past:
    empty = torch.zeros(batch, 0, dtype=torch.float64)
    return Past(
        empty[..., None].expand(batch, 0, stack.action_size),
        empty[..., None].expand(batch, 0, stack.push_size),
    )


def readings(stack: Stack[Any], past: Past, twins: Parameters, backend: str) -> Tensor:
    """[B, t, R] of everything from the start."""
    if isinstance(stack, Several):
        parts, a, p = [], 0, 0
        for one in stack.stacks:
            assert isinstance(one, Stack)
            own = Past(
                past.actions[..., a : a + one.action_size], past.pushed[..., p : p + one.push_size], past.cut
            )
            parts.append(readings(one, own, twins, backend))
            a, p = a + one.action_size, p + one.push_size
        return torch.cat(parts, -1)
    if isinstance(stack, Unnormalized):
        return _weights(stack.original, past)
    if isinstance(stack, Nondeterministic):
        return _probabilities(stack, past, twins, backend)
    if isinstance(stack, Stratification):
        push, pop = past.actions.sigmoid().unbind(2)
        return stratification(push, pop, past.pushed)
    assert isinstance(stack, Superposition)
    sizes = (stack.push_size,) if stack.synchronized else stack.sizes
    parts, p = [], 0
    for j, size in enumerate(sizes):
        push, noop, pop = past.actions[..., 3 * j : 3 * j + 3].softmax(-1).unbind(2)
        parts.append(superposition(push, pop, noop, past.pushed[..., p : p + size], depth=stack.depth))
        p += size
    return torch.cat(parts, -1)


def _parts(stack: Nondeterministic, past: Past) -> list[Tensor]:
    states, symbols = stack.states, stack.symbols
    kinds, leading = states * symbols, past.actions.shape[:2]
    split = torch.split(past.actions, [kinds * kinds, kinds * kinds, kinds * states], -1)
    rows = [part.reshape(*leading, kinds, -1) for part in split]
    if stack.normalized:
        rows = list(torch.split(torch.cat(rows, -1).log_softmax(-1), [kinds, kinds, states], -1))
    shapes = (
        (states, symbols, states, symbols),
        (states, symbols, states, symbols),
        (states, symbols, states),
    )
    return [row.reshape(*leading, *shape) for row, shape in zip(rows, shapes, strict=True)]


def _probabilities(stack: Nondeterministic, past: Past, twins: Parameters, backend: str) -> Tensor:
    vectors = bottom = None
    if stack.vector_size is not None:
        assert stack.bottom is not None
        vectors, bottom = past.pushed, twins[id(stack.bottom)].sigmoid()
        bottom = bottom.detach() if past.cut else bottom
    result = nondeterministic(
        *_parts(stack, past), vectors=vectors, bottom=bottom, window=stack.window,
        bottom_fix=stack.bottom_fix, backend=backend,
    )  # fmt: skip
    assert isinstance(result, Tensor)
    return (result if stack.read_states else result.sum(2)).flatten(2)


def _weights(stack: Nondeterministic, past: Past) -> Tensor:
    """Of runs, not normalised."""
    alpha = reference.run(*_parts(stack, past), window=stack.window, bottom_fix=stack.bottom_fix).alpha.exp()
    return (alpha if stack.read_states else alpha.sum(2)).flatten(2)


@dataclasses.dataclass(frozen=True)
class Network:
    """A `StackRNN` after some step."""

    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    past: Past
    reading: Tensor

    def detach(self) -> Network:
        return Network(
            tuple(h.detach() for h in self.hidden),
            tuple(c.detach() for c in self.cells),
            self.past.detach(),
            self.reading.detach(),
        )

    def select(self, rows: list[int]) -> Network:
        return Network(
            tuple(h[rows] for h in self.hidden),
            tuple(c[rows] for c in self.cells),
            self.past.select(rows),
            self.reading[rows],
        )


def network_run(
    rnn: Any, state: Network, x: Tensor, twins: Parameters, backend: str
) -> tuple[Tensor, Network]:
    """The outputs [B, n, O] of a `StackRNN`, whose equations are written down here once more."""

    def twin(layer: Any) -> tuple[Tensor, Tensor]:
        return twins[id(layer.weight)], twins[id(layer.bias)]

    stack, kind, outputs = rnn.stack, rnn.controller_kind, []
    for given in x.unbind(1):
        read = state.reading
        for layer in rnn.reader or ():
            read = (
                torch.tanh(read)
                if not hasattr(layer, "weight")
                else torch.nn.functional.linear(read, *twin(layer))
            )
        below, hidden, cells = torch.cat([given, read], 1), [], []
        for j, weights in enumerate(rnn.controller.all_weights):
            own = [twins[id(weight)] for weight in weights]
            if kind == "lstm":
                below, cell = torch.lstm_cell(below, (state.hidden[j], state.cells[j]), *own)
                cells.append(cell)
            else:
                below = {"gru": torch.gru_cell, "rnn": torch.rnn_tanh_cell}[kind](
                    below, state.hidden[j], *own
                )
            hidden.append(below)
        actions = torch.nn.functional.linear(below, *twin(rnn.actions))
        pushed = below if rnn.push_hidden else below[:, :0]
        if rnn.pushed is not None:
            pushed = getattr(torch, stack.push_activation)(
                torch.nn.functional.linear(below, *twin(rnn.pushed))
            )
        past = state.past.and_then(actions[:, None], pushed[:, None, : stack.push_size])
        reading = readings(stack, past, twins, backend)[:, -1]
        state = Network(tuple(hidden), tuple(cells), past, reading)
        outputs.append(torch.cat([below, reading], 1) if rnn.output_reading else below)
    return torch.stack(outputs, 1), state
