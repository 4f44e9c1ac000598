"""A bound on what underflow can have cost a chart in torch operations (see `cpu.long.lost_mass`).

Nothing is lost in a block of steps if every product of positive numbers is above the smallest normal number.
Otherwise each product loses no more than that number, and a bound on the mass of lost runs goes from step to
step: with lz_t the logarithm of the growth of all mass,

    lost_t[b] = e^{-lz_t} sum_d lost_{t-1}[d] (e^{push[d,b]} + e^{replace[d,b]} + e^{pop[d,r]}) + fresh_t.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable.forward import Block
from ndstack.ops.nondeterministic.portable.store import NEG, Store, rows_of
from ndstack.ops.nondeterministic.portable.weights import Actions
from ndstack.ops.nondeterministic.precision_limits import LIMITS

CHUNK = 16
"""For how many steps bounds are computed at once."""


def _least_positive(x: Tensor) -> Tensor:
    """The smallest positive number along the last dimension; inf if there is none."""
    if x.shape[-1] == 0:
        return x.new_full(x.shape[:-1], math.inf)
    return torch.where(x > 0, x, math.inf).amin(-1)


def write_floors(store: Store, start: int, block: Block) -> Tensor:
    """The floors of the block's columns; gives the smallest product of positive numbers in it, [B]."""
    at, wide = store.automaton, store.floor.dtype
    states, symbols, kinds = at.states, at.symbols, at.kinds
    batch, steps = block.least.shape
    rows = _least_positive(block.older.rows).view(batch, symbols, steps + 1, states)
    rows = rows.transpose(1, 2).reshape(batch, steps + 1, kinds).to(wide)  # [B, m + 1, K]
    new = rows_of(store.columns, states, start + 1, start + 1 + steps)
    own = new[..., (start + 1) * kinds : (start + 1 + steps) * kinds]
    own = (
        _least_positive(own).view(batch, symbols, steps, states).transpose(1, 2).reshape(batch, steps, kinds)
    )
    share = torch.where(block.alpha > 0, block.alpha.reciprocal(), math.inf)
    floor = torch.minimum(rows[:, 1:] * share[:, 1:], own.to(wide))
    before = store.floor[:, :start]
    store.floor[:, start + 1 : start + 1 + steps] = floor
    inner = _least_positive(block.inner.rows.flatten(1)).to(wide)  # [B]
    low = torch.minimum(rows.amin((1, 2)), inner).clamp_max(1.0)
    weight = block.least.amin(1).exp()
    products = [low * weight, weight, floor.amin((1, 2)), low]
    products.append(low * _least_positive(block.inner.uses.flatten(1)).to(wide))
    if start:
        depth = before.view(batch, start, symbols, states).transpose(1, 2).reshape(batch, symbols, 1, -1)
        popped = torch.where(block.older.uses > 0, block.older.uses, math.inf).amin(2, keepdim=True)
        products.append((popped.to(wide) * depth).amin((1, 2, 3)))
    return torch.stack(products).nan_to_num(0.0, math.inf).amin(0)


def inspect(store: Store, start: int, block: Block) -> tuple[Tensor, Tensor]:
    """What the steps of a block may newly lose, [B, m], relative to all mass, and which charts are finite.

    Where numbers are not finite, the chart is made one in which no run survives, so that no later step and no
    derivative meets them.
    """
    at, dtype, wide = store.automaton, store.columns.dtype, store.floor.dtype
    steps = block.least.shape[1]
    tiny = torch.finfo(dtype).tiny
    exact = write_floors(store, start, block) >= 2 * tiny
    total = block.alpha.sum(-1)
    top = total.cummax(1).values[:, 1:]
    time = torch.arange(start + 1, start + 1 + steps, device=total.device, dtype=wide)
    count = 4 * tiny * (time + 1 - at.low(start + 1)) * at.kinds * (at.kinds + at.states * time)
    fresh = torch.where(exact[:, None], 0.0, count * top / total[:, 1:])
    shrunk = (block.alpha > 0) & (block.alpha < tiny)  # columns divided by this may be anything
    whole = total.sum(1).isfinite() & ~shrunk[:, 1:].flatten(1).any(1)
    new = rows_of(store.columns, at.states, start + 1, start + 1 + steps)
    new[..., : (start + 1 + steps) * at.kinds].masked_fill_(~whole[:, None, None, None], 0.0)
    for logs in (store.log_alpha, store.log_total):
        logs[:, start + 1 : start + 1 + steps].masked_fill_(~whole[:, None, None], NEG)
    return fresh, whole


def bound(
    store: Store, start: int, actions: Actions, lost: Tensor, fresh: Tensor, strict: bool
) -> tuple[Tensor, Tensor]:
    """The bounds after some steps, [B, K], and which sequences have never lost too much, [B].

    Args:
        actions: the log weights of the steps after time `start`.
        lost: [B, K], the bounds before them.
        fresh: [B, n, K] or [B, n, 1], what each step may newly lose, relative to all mass.
        strict: whether the mass of every configuration type counts on its own.
    """
    here = slice(start + 1, start + 1 + actions.push.shape[1])
    norm = torch.logsumexp(store.log_total[:, here], -1)
    dead = norm == NEG
    shift = norm.masked_fill(dead, 0.0)[..., None, None]
    moves = (actions.push - shift).exp() + (actions.replace - shift).exp()
    moves = moves + (actions.pop - shift).exp().repeat(1, 1, 1, store.automaton.symbols)
    moves = moves.clamp_max(1e150).masked_fill(dead[..., None, None], 0.0)
    fresh = fresh.nan_to_num(math.inf, math.inf).masked_fill(dead[..., None] & ~(fresh > 0), 0.0)
    found = _propagate(lost, moves, fresh.expand(-1, -1, moves.shape[2]))
    before = torch.cat([lost[:, None], found[:, :-1]], 1)
    most = math.exp(LIMITS[store.columns.dtype])
    fine = (found.sum(-1) <= most) & ~(dead & (before > 0).any(-1))
    if strict:
        fine &= (found <= most * store.log_alpha[:, here].exp()).all(-1)
    return found[:, -1].nan_to_num(math.inf, math.inf), fine.all(1)


def _propagate(lost: Tensor, moves: Tensor, fresh: Tensor) -> Tensor:
    """lost_t = lost_{t-1} moves_t + fresh_t for all t, [B, n, K], a triangular system for every few steps."""
    batch, steps, kinds, _ = moves.shape
    results = []
    for first in range(0, steps, CHUNK):
        own = moves[:, first : first + CHUNK]
        count = own.shape[1]
        given = fresh[:, first : first + CHUNK].clone()
        given[:, 0] += (lost[:, None] @ own[:, 0])[:, 0]
        if count > 1:
            system = own.new_zeros(batch, count, kinds, count, kinds)
            system.diagonal(-1, 1, 3).copy_(-own[:, 1:].permute(0, 3, 2, 1))
            system = system.view(batch, count * kinds, count * kinds)
            given = torch.linalg.solve_triangular(
                system, given.reshape(batch, -1, 1), upper=False, unitriangular=True
            ).view(batch, count, kinds)
        results.append(given)
        lost = given[:, -1]
    return torch.cat(results, 1)
