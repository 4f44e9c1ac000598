"""Whole sequences in plain torch, as `guarded_scan` wants it.

There, configuration types are numbered (state, symbol); in `recurrence`, (symbol, state).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable import lost_mass, recurrence
from ndstack.ops.nondeterministic.portable.recurrence import Run, symbol_first
from ndstack.ops.nondeterministic.settings import Setting, action_sizes


def _inward(actions: Tensor, setting: Setting) -> list[Tensor]:
    """push, replace [B, n, K, K] and pop [B, n, K, Q], symbol first."""
    states, symbols = setting.states, setting.symbols
    kinds = states * symbols
    leading = actions.shape[:2]
    parts = torch.split(actions, action_sizes(states, symbols), -1)
    square = [part.reshape(*leading, kinds, kinds) for part in parts[:2]]
    pop = parts[2].reshape(*leading, kinds, states)
    return [symbol_first(action, states, symbols, 2) for action in square] + [
        symbol_first(pop.mT, states, symbols, 1).mT
    ]


def run(actions: Tensor, setting: Setting) -> tuple[Run, Tensor, Tensor, Tensor]:
    """The chart, the probabilities, the attention (empty if not wanted), and which sequences to trust."""
    states, symbols = setting.states, setting.symbols
    given = _inward(actions, setting)
    chart = recurrence.forward(given[0], given[1], given[2], states, setting.window, setting.bottom_fix)
    ok = lost_mass.trusted(chart, given[0], given[1], given[2], setting.strict)
    dtype = actions.dtype
    reading = symbol_first(chart.log_alpha[:, 1:].exp().to(dtype), symbols, states, 1)
    attention = actions.new_zeros(0)
    if setting.attend:
        attention = symbol_first(recurrence.attention(chart).mT, symbols, states, 1).mT.contiguous()
    return chart, reading, attention, ok


def gradient(
    chart: Run,
    setting: Setting,
    actions: Tensor,
    outputs: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    trusted: Tensor,
) -> Tensor:
    """The derivatives with respect to the actions; zeros for sequences that are not to be trusted."""
    states, symbols = setting.states, setting.symbols
    given = _inward(actions, setting)
    reading, grad = outputs[0], grads[0]
    alpha = reading * (grad - (reading * grad).sum(-1, keepdim=True))
    weights = grads[1]
    if weights is not None:
        alpha = alpha - (weights * outputs[1]).sum(-1)
        weights = symbol_first(weights.mT, states, symbols, 1).mT
    results = recurrence.backward(
        chart, given[0], given[1], given[2], symbol_first(alpha, states, symbols, 1), weights
    )
    outward = [symbol_first(result, symbols, states, 2) for result in results[:2]]
    outward.append(symbol_first(results[2].mT, symbols, states, 1).mT)
    joined = torch.cat([result.flatten(2) for result in outward], -1)
    return torch.where(trusted[:, None, None], joined, 0.0)
