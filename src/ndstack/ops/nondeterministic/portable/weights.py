"""Log weights as blocks of time steps and their gradients want them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable.store import NEG, Store
from ndstack.ops.nondeterministic.settings import action_sizes


class Actions(NamedTuple):
    """Log weights of n steps, symbol first: push, replace [B, n, K, K] and pop [B, n, K, Q]."""

    push: Tensor
    replace: Tensor
    pop: Tensor

    def steps(self, first: int, last: int) -> Actions:
        """Those of some steps."""
        return Actions(*(part[:, first:last] for part in self))


class Scaled(NamedTuple):
    """Weights of n steps, those of step t divided by e^{c_t}.

    Attributes:
        push: [B, n, K, K], from a to b.
        leave: [B, n, Q + K, K], from d to (r or b): pops to r, then replacements by b.
        growth: [B, n], c.
        least: [B, n], the logarithm of the smallest of the positive weights.
    """

    push: Tensor
    leave: Tensor
    growth: Tensor
    least: Tensor


class StepWeights(NamedTuple):
    """WU, WR [B, n, K, K] (from, to), CP [B, n, K, Q] and E [B, n, K] of n steps (see `cpu.forward`)."""

    push: Tensor
    replace: Tensor
    pop: Tensor
    uncover: Tensor


def symbol_first(tensor: Tensor, states: int, symbols: int, dims: int) -> Tensor:
    """Renumber the last `dims` dimensions of size K from (state, symbol) to (symbol, state)."""
    shape = tensor.shape[: tensor.dim() - dims]
    split = tensor.reshape(*shape, *([states, symbols] * dims))
    order = list(range(len(shape)))
    for d in range(dims):
        order += [len(shape) + 2 * d + 1, len(shape) + 2 * d]
    return split.permute(order).reshape(tensor.shape)


def inward(actions: Tensor, states: int, symbols: int) -> Actions:
    """Log weights [B, n, A], as stacks have them, symbol first."""
    kinds, leading = states * symbols, actions.shape[:2]
    parts = torch.split(actions, action_sizes(states, symbols), -1)
    push, replace = (symbol_first(p.reshape(*leading, kinds, kinds), states, symbols, 2) for p in parts[:2])
    pop = parts[2].reshape(*leading, states, symbols, states).transpose(2, 3)
    return Actions(push, replace, pop.reshape(*leading, kinds, states))


def outward(actions: Actions, states: int, symbols: int) -> Tensor:
    """The inverse of `inward`."""
    leading = actions.push.shape[:2]
    parts = [symbol_first(part, symbols, states, 2).flatten(2) for part in actions[:2]]
    pop = actions.pop.reshape(*leading, symbols, states, states).transpose(2, 3)
    return torch.cat([*parts, pop.reshape(*leading, -1)], -1)


def scaled(actions: Actions, symbols: int, likely: Tensor, wide: torch.dtype) -> Scaled:
    """Weights divided by estimates e^{c_t} of how much alpha grows at each step.

    The estimate takes every uncovered symbol for equally likely, and the configuration types before a step
    for what the last steps would make of equal ones.

    Args:
        likely: [B, 1, K], shares of the configuration types before the first step.
    """
    dtype, kinds = actions.push.dtype, actions.push.shape[-1]
    logs = torch.cat([actions.pop, actions.replace, actions.push], -1).to(wide)  # [B, n, K, Q + 2 K]
    best = logs.amax((2, 3))
    best = best.masked_fill(best == NEG, 0.0)
    weights = (logs - best[..., None, None]).exp()
    pop, replace, push = torch.split(weights, [actions.pop.shape[-1], kinds, kinds], -1)
    moves = replace + push + (pop / symbols).repeat(1, 1, 1, symbols)
    guess = moves.sum(2)
    for _ in range(2 if push.shape[1] > 1 else 1):
        before = torch.cat([likely, guess[:, :-1]], 1)
        before = before / before.sum(-1, keepdim=True).clamp_min(torch.finfo(wide).tiny)
        guess = (before[..., None, :] @ moves).squeeze(-2)
    total = guess.sum(-1)
    total = total.masked_fill(total <= 0, 1.0)
    growth = best + total.log()
    least = (logs - growth[..., None, None]).masked_fill(logs == NEG, math.inf).amin((2, 3))
    share = total[..., None, None]
    leave = torch.cat([pop, replace], -1) / share
    return Scaled((push / share).to(dtype), leave.mT.to(dtype), growth, least)


def _exp(x: Tensor, shift: Tensor, most: float) -> Tensor:
    """exp(x - shift), but not more than e^most; 0 where shift is -inf."""
    dead = shift == NEG
    return (x - shift.masked_fill(dead, 0.0)).clamp_max(most).masked_fill(dead, NEG).exp()


def step_weights(store: Store, actions: Actions, start: int) -> StepWeights:
    """WU, WR, CP and E of the steps after time `start`, from what the forward pass left.

    A weight of something that did not happen, because the window or the bottom of the stack was in the way,
    can exceed e^60 by far. All that it multiplies is 0, so it only has to be finite.
    """
    dtype, symbols = store.columns.dtype, store.automaton.symbols
    most = 0.7 * math.log(torch.finfo(dtype).max)
    here = slice(start + 1, start + 1 + actions.push.shape[1])
    before = store.log_alpha[:, start : here.stop - 1, :, None]
    total = store.log_total[:, here]
    pop = before + actions.pop
    best = pop.amax(2)
    results = (
        _exp(before + actions.push, total[..., None, :], most),
        _exp(before + actions.replace, total[..., None, :], most),
        _exp(pop, best[..., None, :], 0.0),
        _exp(best.repeat(1, 1, symbols), total, most),
    )
    return StepWeights(*(result.to(dtype) for result in results))
