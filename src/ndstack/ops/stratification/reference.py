"""The stratification stack's update as tensor functions (section 3.3.1).

Element i, pushed at step i, has a vector v[i], never changed, and a strength s_t[i]:

    s_t[i] = max(0, s_{t-1}[i] - max(0, pop_t - sum_{j=i+1}^{t-1} s_{t-1}[j]))     i < t
    s_t[t] = push_t
    r_t    = sum_i min(s_t[i], max(0, 1 - sum_{j=i+1}^t s_t[j])) v[i].

This is plain torch, for any device; `__init__.py` describes the arguments.
"""

import math

import torch
from torch import Tensor

from ndstack.ops.runtime import devices


def update(strengths: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """Return the strengths [N, k+1] after one step, from those before, [N, k]; push and pop are [N]."""
    rest = torch.relu(strengths - torch.relu(pop[:, None] - _above(strengths)))
    return torch.cat([rest, push[:, None]], dim=1)


def reading_weights(strengths: Tensor) -> Tensor:
    """Return what each element contributes to the reading: strengths cut to the top slice, [N, k]."""
    return torch.minimum(strengths, torch.relu(1 - _above(strengths)))


def step(elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Make one step."""
    push, pop = actions.sigmoid().unbind(1)
    strengths = update(elements[:, :, 0], push, pop)
    all_vectors = torch.cat([elements[:, :, 1:], vectors[:, None]], dim=1)
    reading = (reading_weights(strengths)[:, None] @ all_vectors)[:, 0]
    return reading, torch.cat([strengths[:, :, None], all_vectors], dim=2)


def scan(strengths: Tensor, actions: Tensor, vectors: Tensor, logits: bool) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps."""
    n, each = actions.shape[1], []
    push, pop = (actions.sigmoid() if logits else actions).unbind(2)
    for t in range(n):
        strengths = update(strengths, push[:, t], pop[:, t])
        each.append(torch.nn.functional.pad(reading_weights(strengths), (0, n - t - 1)))
    weights = torch.stack(each, dim=1)
    if devices.on_host(vectors) and bool(vectors.isfinite().all()):
        return weights @ vectors, strengths
    # What is not a number makes all readings from there on such, but not those before.
    finite = vectors.isfinite()
    known = (~finite).long().cumsum(1)[:, vectors.shape[1] - n :] == 0
    readings = weights @ torch.where(finite, vectors, 0.0)
    return readings * readings.new_ones(()).where(known, math.nan), strengths


def _above(strengths: Tensor) -> Tensor:
    """Return the sum of the strengths above each element, [N, k]."""
    inclusive = strengths.flip(1).cumsum(1).flip(1)
    return torch.nn.functional.pad(inclusive[:, 1:], (0, min(1, strengths.shape[1])))
