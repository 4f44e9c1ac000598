"""An LSTM that drives nondeterministic stacks from their start, in graphs of `torch.compile`.

See `ndstack.ops.runtime.in_graph`. Sequences that float32 is too narrow for are rare; where there are some,
the whole call is made as it is without a graph, and differentiated by torch.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.nn.fused.nondeterministic import NondeterministicLSTM, padded
from ndstack.ops import fused
from ndstack.ops.lstm import LSTMWeights
from ndstack.ops.nondeterministic import join_history, start_chart
from ndstack.ops.runtime import in_graph
from ndstack.ops.runtime.autograd import Gradients
from ndstack.ops.runtime.in_graph import Kept, Shape
from ndstack.stacks import Nondeterministic, NondeterministicState


class _Recorded(NamedTuple):
    """A run that torch has recorded."""

    given: Sequence[Tensor]
    outputs: tuple[Tensor, ...]


@functools.cache
def _stack(
    states: int, symbols: int, size: int, normalized: int, read_states: int, window: int, bottom_fix: int
) -> Nondeterministic:
    return Nondeterministic(
        states,
        symbols,
        size or None,
        normalized=bool(normalized),
        read_states=bool(read_states),
        window=window or None,
        bottom_fix=bool(bottom_fix),
    )


class _FreshRun:
    """See `ndstack.ops.runtime.in_graph.Passes`.

    It is given the inputs, the weights and r_0; if the stack holds vectors, also those of the bottom, and the
    parameter that they come from, by which sequences that are computed again are differentiated.
    """

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> list[Shape]:
        (batch, n, gates), reading = given[0].shape, given[1].shape[1]
        size = numbers[2]
        actions, each = given[3].shape[0] - size, (batch, n)
        vectors = [(batch, n + 1, size)] if size else []
        return [(*each, gates // 4), (*each, reading), (batch, gates // 4), (*each, actions), *vectors]

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[Kept | _Recorded, tuple[Tensor, ...]]:
        inputs, stack, kept = given[0], _stack(*numbers), Kept(record)
        batch, steps, gates = inputs.shape
        chart = start_chart(stack.setting(), batch, steps, inputs.dtype)
        wide = given
        if chart.dtype is not inputs.dtype:  # charts of a window may be more precise
            wide = [tensor.to(chart.dtype) for tensor in given]
        nothing = wide[0].new_zeros(batch, gates // 4)
        done = fused.nondeterministic.run(
            wide[0],
            LSTMWeights(*wide[1:5]),
            (nothing, nothing, wide[5]),
            wide[6] if stack.vector_size else None,
            chart,
            normalized=stack.normalized,
            by_state=stack.read_states,
            kept=kept,
        )
        if done.trusted is None:
            parts = (done.hidden, done.readings, done.last_cell, done.actions, done.vectors)
            shown = parts if stack.vector_size else parts[:4]
            return kept, shown if wide is given else tuple(part.to(inputs.dtype) for part in shown)
        if not record:
            with torch.no_grad():
                return kept, _run(stack, given)
        recorded = in_graph.apart(lambda: _recorded(stack, given))
        return recorded, tuple(output.detach().clone() for output in recorded.outputs)

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        if isinstance(kept, _Recorded):
            return in_graph.apart(
                lambda: torch.autograd.grad(
                    kept.outputs[: len(grads)], kept.given, list(grads), retain_graph=True, allow_unused=True
                )
            )
        assert isinstance(kept, Kept)
        dtype, wide = grads[0].dtype, kept.saved_tensors[0].dtype
        received = grads if dtype is wide else [grad.to(wide) for grad in grads]
        found = fused.nondeterministic.gradients(kept, *received, *[None] * (5 - len(grads)))
        if dtype is not wide:
            found = tuple(None if grad is None else grad.to(dtype) for grad in found)
        return (*found, None) if kept.sizes.vector else tuple(found[:6])


def _recorded(stack: Nondeterministic, given: Sequence[Tensor]) -> _Recorded:
    """Run a whole sequence so that it can be differentiated."""
    leaves = [torch.nn.Parameter(tensor.detach()) for tensor in given]
    return _Recorded(leaves, _run(stack, leaves))


def _run(stack: Nondeterministic, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a whole sequence as it is without a graph."""
    inputs, (reading, *bottom) = given[0], given[5:]
    batch, steps, gates = inputs.shape
    nothing = inputs.new_zeros(batch, gates // 4)
    start = NondeterministicState(reading, bottom[0] if bottom else None, (), None, 0)
    if bottom:
        own = bottom[1]
        stack = copy.deepcopy(stack)
        stack.bottom = own if isinstance(own, torch.nn.Parameter) else torch.nn.Parameter(own, False)
    done = NondeterministicLSTM().run(stack, inputs, LSTMWeights(*given[1:5]), (nothing, nothing), start)
    actions = join_history(done.state.history, stack.setting(), batch, steps)
    after = () if done.state.vectors is None else (padded(done.state.vectors, steps),)
    return done.hidden, done.readings, done.lstm_state[1], actions, *after


passes = _FreshRun()
