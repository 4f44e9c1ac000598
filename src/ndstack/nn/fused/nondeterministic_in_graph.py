"""An LSTM that drives nondeterministic stacks from their start, in graphs of `torch.compile`.

See `ndstack.ops.runtime.in_graph`. Sequences that float32 is too narrow for are rare; where there are some,
the whole call is made as it is without a graph, and differentiated by torch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.nn.fused.nondeterministic import NondeterministicLSTM
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.nondeterministic import start_chart
from ndstack.ops.runtime import in_graph
from ndstack.ops.runtime.autograd import Gradients
from ndstack.ops.runtime.in_graph import Kept, Shape
from ndstack.stacks import Nondeterministic


class _Recorded(NamedTuple):
    """A run that torch has recorded."""

    given: list[Tensor]
    outputs: tuple[Tensor, ...]


@functools.cache
def _stack(states: int, symbols: int, normalized: int, read_states: int, bottom_fix: int) -> Nondeterministic:
    return Nondeterministic(
        states,
        symbols,
        normalized=bool(normalized),
        read_states=bool(read_states),
        bottom_fix=bool(bottom_fix),
    )


class _FreshRun:
    """See `ndstack.ops.runtime.in_graph.Passes`."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (batch, n, gates), reading, actions = given[0].shape, given[1].shape[1], given[3].shape[0]
        each = (batch, n)
        return [(*each, gates // 4), (*each, reading), (batch, gates // 4), (*each, actions)]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept | _Recorded, tuple[Tensor, ...]]:
        inputs, stack, kept = given[0], _stack(*numbers), Kept(record)
        batch, steps, gates = inputs.shape
        start = stack.start(batch, dtype=inputs.dtype)
        nothing = inputs.new_zeros(batch, gates // 4)
        done = fused.nondeterministic.run(
            inputs,
            LSTMWeights(*given[1:]),
            (nothing, nothing, start.reading),
            None,
            start_chart(stack.setting(), batch, steps, inputs.dtype),
            normalized=stack.normalized,
            by_state=stack.read_states,
            kept=kept,
        )
        if done.trusted.all():
            return kept, (done.hidden, done.readings, done.last_cell, done.actions)
        if not record:
            with torch.no_grad():
                return kept, _run(stack, given)
        recorded = in_graph.apart(lambda: _recorded(stack, given))
        return recorded, tuple(output.detach().clone() for output in recorded.outputs)

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        if isinstance(kept, _Recorded):
            return in_graph.apart(
                lambda: torch.autograd.grad(kept.outputs, kept.given, list(grads), retain_graph=True)
            )
        assert isinstance(kept, Kept)
        return fused.nondeterministic.gradients(kept, *grads)


def _recorded(stack: Nondeterministic, given: Sequence[Tensor]) -> _Recorded:
    """Run a whole sequence so that it can be differentiated."""
    leaves = [tensor.detach().requires_grad_() for tensor in given]
    return _Recorded(leaves, _run(stack, leaves))


def _run(stack: Nondeterministic, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a whole sequence as it is without a graph."""
    inputs, *weights = given
    nothing = inputs.new_zeros(inputs.shape[0], inputs.shape[2] // 4)
    start = stack.start(inputs.shape[0], dtype=inputs.dtype)
    done = NondeterministicLSTM().run(stack, inputs, LSTMWeights(*weights), (nothing, nothing), start)
    (actions,) = done.state.history
    return done.hidden, done.readings, done.lstm_state[1], actions


passes = _FreshRun()
