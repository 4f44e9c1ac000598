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


def advance(
    store: Store, start: int, actions: Actions, block: Block, lost: Tensor, strict: bool
) -> tuple[Tensor, Tensor]:
    """The bounds after a block, relative to all mass, and which sequences have not lost too much, [B].

    Where numbers are not finite, the chart is made one in which no run survives, so that no later step and no
    derivative meets them.

    Args:
        actions: the log weights of the block.
        lost: [B, K], the bounds before it.
        strict: whether the mass of every configuration type counts on its own.
    """
    at, dtype, wide = store.automaton, store.columns.dtype, lost.dtype
    steps = block.least.shape[1]
    tiny = torch.finfo(dtype).tiny
    exact = write_floors(store, start, block) >= 2 * tiny
    here = slice(start + 1, start + 1 + steps)
    total = block.alpha.sum(-1)
    top = total.cummax(1).values[:, 1:]
    time = torch.arange(start + 1, start + 1 + steps, device=lost.device, dtype=wide)
    count = 4 * tiny * (time + 1 - at.low(start + 1)) * at.kinds * (at.kinds + at.states * time)
    fresh = torch.where(exact[:, None], 0.0, count * top / total[:, 1:]).nan_to_num(math.inf, math.inf)
    norm = torch.logsumexp(store.log_total[:, here], -1)
    dead = norm == NEG
    fresh = fresh.masked_fill(dead & exact[:, None], 0.0)
    shift = norm.masked_fill(dead, 0.0)[..., None, None]
    moves = (actions.push - shift).exp() + (actions.replace - shift).exp()
    moves = moves + (actions.pop - shift).exp().repeat(1, 1, 1, at.symbols)
    moves = moves.clamp_max(1e150).masked_fill(dead[..., None, None], 0.0)
    bounds, each = [lost], fresh[..., None].expand(-1, -1, at.kinds)
    for n in range(steps):
        bounds.append(torch.baddbmm(each[:, n, None], bounds[-1][:, None], moves[:, n])[:, 0])
    found = torch.stack(bounds, 1)
    most = math.exp(LIMITS[dtype])
    fine = (found[:, 1:].sum(-1) <= most) & ~(dead & (found[:, :-1] > 0).any(-1))
    if strict:
        shares = store.log_alpha[:, here].exp()
        fine &= (found[:, 1:] <= most * shares).all(-1)
    numbers = store.log_total[:, here].isnan().flatten(1).any(1) | (block.alpha == math.inf).flatten(1).any(1)
    new = rows_of(store.columns, at.states, start + 1, start + 1 + steps)
    whole = new.sum((1, 2, 3), dtype=wide).isfinite()
    whole &= ~numbers
    new.masked_fill_(~whole[:, None, None, None], 0.0)
    for logs in (store.log_alpha, store.log_total):
        logs[:, here].masked_fill_(~whole[:, None, None], NEG)
    return found[:, -1].nan_to_num(math.inf, math.inf), fine.all(1) & whole
