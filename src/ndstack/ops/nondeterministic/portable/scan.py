"""Whole sequences in torch operations, as `guarded_scan` wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable import backward, forward, lost_mass
from ndstack.ops.nondeterministic.portable.backward import Adjoint
from ndstack.ops.nondeterministic.portable.store import Automaton, Store, rows_of
from ndstack.ops.nondeterministic.portable.weights import Actions, inward, outward, symbol_first
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime import devices
from ndstack.ops.runtime.tracing import recording


class Kernels(forward.TorchKernels, backward.TorchKernels):
    """All parts that go step by step, in torch operations."""


KERNELS = Kernels()


class Done(NamedTuple):
    """What some steps give, numbered state first.

    Attributes:
        reading: [B, n, K].
        attention: [B, n, K, positions], or empty.
        lost: [B, K], a bound on what underflow has cost, relative to all mass.
        trusted: [B], whether it was not too much.
        borders: the times at which blocks begin, and the last one.
    """

    reading: Tensor
    attention: Tensor
    lost: Tensor
    trusted: Tensor
    borders: list[int]


def automaton_of(setting: Setting) -> Automaton:
    """What a store is told."""
    return Automaton(setting.states, setting.symbols, setting.window, setting.bottom_fix)


def advance(
    store: Store, start: int, actions: Tensor, lost: Tensor, setting: Setting, kernels: Kernels = KERNELS
) -> Done:
    """The steps after time `start`.

    Args:
        actions: [B, n, A], log weights.
        lost: [B, K], the bound so far.
    """
    at, steps, dtype = store.automaton, actions.shape[1], actions.dtype
    given = inward(actions.to(store.columns.dtype), at.states, at.symbols)
    borders: list[int] = []
    fresh: list[Tensor] = []
    whole: list[Tensor] = []
    block_size = 1 if recording() else forward.BLOCK  # ONNX has no triangular solver
    with devices.full_float32(actions.device):
        for begin, weights, inner in forward.prepare(store, start, given, block_size, kernels):
            block = forward.run_block(store, begin, weights, inner, kernels)
            for found, part in zip((fresh, whole), lost_mass.inspect(store, begin, block), strict=True):
                found.append(part)
            borders.append(begin)
        trusted = torch.stack(whole).all(0)
        if not recording():  # where nobody will look
            lost, fine = lost_mass.bound(
                store, start, given, lost, torch.cat(fresh, 1)[..., None], setting.strict
            )
            trusted &= fine
    end = start + steps
    shown = store.log_alpha[:, start + 1 : end + 1].exp().to(dtype)
    attention = actions.new_zeros(0)
    if setting.attend:
        shares = _attention(store, start, end).to(dtype)
        attention = symbol_first(shares.mT, at.symbols, at.states, 1).mT.contiguous()
    reading = symbol_first(shown, at.symbols, at.states, 1)
    return Done(reading, attention, lost, trusted, [*borders, end])


def _attention(store: Store, start: int, end: int) -> Tensor:
    """sum_a P_t[i, a | b] for the times after `start`, [B, n, K, end + 1]."""
    at, steps = store.automaton, end - start
    columns = rows_of(store.columns, at.states, start + 1, end + 1)[..., : (end + 1) * at.kinds]
    sums = columns.reshape(*columns.shape[:3], end + 1, at.kinds).sum(-1)
    sums = sums.view(len(sums), at.symbols, steps, at.states, end + 1)
    return sums.transpose(1, 2).reshape(len(sums), steps, at.kinds, end + 1)


def go_back(
    store: Store,
    borders: Sequence[int],
    actions: Tensor,
    adjoint: Adjoint,
    outputs: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    kernels: Kernels = KERNELS,
) -> Tensor:
    """The derivatives with respect to the actions of some steps; brings the adjoint to their beginning."""
    at, dtype, start = store.automaton, store.columns.dtype, borders[0]
    given = inward(actions.to(dtype), at.states, at.symbols)
    reading, grad = outputs[0], grads[0]
    alpha = reading * (grad - (reading * grad).sum(-1, keepdim=True))
    weights = grads[1]
    if weights is not None:
        alpha = alpha - (weights * outputs[1]).sum(-1)
        weights = symbol_first(weights.mT, at.states, at.symbols, 1).mT.to(dtype)
    alpha = symbol_first(alpha, at.states, at.symbols, 1).to(dtype)
    parts: list[Actions] = []
    with devices.full_float32(actions.device):
        for begin, end in zip(reversed(borders[:-1]), reversed(borders[1:]), strict=True):
            here = slice(begin - start, end - start)
            shown = None if weights is None else weights[:, here]
            own = given.steps(here.start, here.stop)
            parts.append(backward.block_back(store, begin, own, adjoint, alpha[:, here], shown, kernels))
    joined = Actions(*(torch.cat(some[::-1], 1) for some in zip(*parts, strict=True)))
    return outward(joined, at.states, at.symbols).to(actions.dtype)


class Run(NamedTuple):
    """What a forward pass over whole sequences leaves for the backward pass."""

    store: Store
    borders: list[int]


def run(actions: Tensor, setting: Setting, kernels: Kernels = KERNELS) -> tuple[Run, Tensor, Tensor, Tensor]:
    """The chart, the probabilities, the attention (empty if not wanted), and which sequences to trust."""
    batch, steps = actions.shape[:2]
    store = Store.start(automaton_of(setting), batch, steps + 1, actions.dtype, actions.device)
    done = advance(store, 0, actions, torch.zeros_like(store.log_alpha[:, 0]), setting, kernels)
    return Run(store, done.borders), done.reading, done.attention, done.trusted


def gradient(
    chart: Run,
    setting: Setting,
    actions: Tensor,
    outputs: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    trusted: Tensor,
    kernels: Kernels = KERNELS,
) -> Tensor:
    """The derivatives with respect to the actions; zeros for sequences that are not to be trusted."""
    found = go_back(chart.store, chart.borders, actions, Adjoint.zeros(chart.store), outputs, grads, kernels)
    return torch.where(trusted[:, None, None], found, 0.0)
