"""The pop rule in log space as a differentiable operation, without a copy of the chart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.nondeterministic.cpu import log_pop_loops
from ndstack.ops.runtime.addresses import array, empty, memory_of, written, zeros
from ndstack.ops.runtime.autograd import Context, Operation, refuse_second_derivatives
from ndstack.ops.runtime.threads import COST_OF_EXPONENTIAL, share


def fits(gamma: Tensor, extended: Tensor) -> bool:
    """Return whether `pops` can be given these.

    They are the part of a chart that `reference` gives to the pop rule, and gamma[i -> k] is contiguous for
    each i.
    """
    i, k, states, symbols = gamma.shape[1:5]
    kinds = states * symbols
    return (
        i == k + 1
        and gamma.shape[5:] == (states, symbols)
        and extended.shape[2:] == (states, symbols, states)
        and bool(gamma.numel())
        and gamma.stride()[2:] == (kinds * kinds, symbols * kinds, kinds, symbols, 1)
    )


def pops(gamma: Tensor, extended: Tensor) -> Tensor:
    """Return the weights of runs that end with a pop, [B, i, Q, S, Q, S].

    Args:
        gamma: [B, i, k, Q, S, Q, S]. The k of number j is later than the i of number j by one step. Only
            k > i counts: no run leads to an earlier time.
        extended: gamma', [B, k, Q, S, Q].
    """
    result: Tensor = _Pops.apply(gamma, extended)
    return result


class _Memory:
    """Where in memory gamma is, for compiled code."""

    def __init__(self, gamma: Tensor) -> None:
        self.numbers = memory_of(gamma, torch.float64)
        self.offset = gamma.storage_offset()
        self.strides = np.array(gamma.stride()[:2], np.int64)
        self.times = np.array(gamma.shape[1:3], np.int64)

    @property
    def arguments(self) -> tuple[object, ...]:
        """What the compiled functions take."""
        return self.numbers, self.offset, self.strides, self.times


class _Pops(Operation):
    @staticmethod
    def forward(ctx: Context, gamma: Tensor, extended: Tensor) -> Tensor:
        (batch, i, k, states, symbols), kind = gamma.shape[:5], torch.float64
        kinds = states * symbols
        out = empty(kind, batch, i, kinds * kinds)
        given = array(extended, kind, batch, k, *extended.shape[2:]).reshape(batch, k, kinds * states)
        share(
            batch, log_pop_loops.forward, COST_OF_EXPONENTIAL * batch * i * k / 2 * kinds * kinds * states,
            states, symbols, *_Memory(gamma).arguments, given, written(out, kind, batch, i, kinds * kinds),
        )  # fmt: skip
        ctx.save_for_backward(gamma, extended, out)
        return out.view(batch, i, states, symbols, states, symbols)

    @staticmethod
    def backward(ctx: Context, *received: Tensor) -> tuple[Tensor, Tensor]:
        refuse_second_derivatives()
        gamma, extended, out = ctx.saved_tensors
        (batch, i, k, states, symbols), kind = gamma.shape[:5], torch.float64
        kinds = states * symbols
        by_gamma, by_extended = zeros(kind, batch, i * k * kinds**2), zeros(kind, batch, k, kinds * states)
        given = array(extended, kind, batch, k, *extended.shape[2:]).reshape(batch, k, kinds * states)
        grads = array(received[0], kind, *received[0].shape).reshape(batch, i, kinds * kinds)
        share(
            batch, log_pop_loops.backward, COST_OF_EXPONENTIAL * batch * i * k / 2 * kinds * kinds * states,
            states, symbols, *_Memory(gamma).arguments, given, array(out, kind, *out.shape), grads,
            written(by_gamma, kind, *by_gamma.shape), written(by_extended, kind, *by_extended.shape),
        )  # fmt: skip
        return by_gamma.view(gamma.shape), by_extended.view(extended.shape)
