"""The stratification stack's update as tensor functions (section 3.3.1).

Element i, pushed at step i, has a vector v[i], never changed, and a strength s_t[i]:

    s_t[i] = max(0, s_{t-1}[i] - max(0, pop_t - sum_{j=i+1}^{t-1} s_{t-1}[j]))     i < t
    s_t[t] = push_t
    r_t    = sum_i min(s_t[i], max(0, 1 - sum_{j=i+1}^t s_t[j])) v[i].

Here is the plain torch version, for any device; on a CPU the compiled one is used.
"""

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from ndstack.ops.fused import one_step
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.runtime.autograd import compilable


def update(strengths: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The strengths [N, k+1] after one step, from those before, [N, k]; push and pop are [N]."""
    rest = torch.relu(strengths - torch.relu(pop[:, None] - _above(strengths)))
    return torch.cat([rest, push[:, None]], dim=1)


def reading_weights(strengths: Tensor) -> Tensor:
    """What each element contributes to the reading: strengths cut to the top slice, [N, k]."""
    return torch.minimum(strengths, torch.relu(1 - _above(strengths)))


def step(elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """One step.

    Args:
        elements: [B, k, 1+m], bottom first, each a strength and then a vector.
        actions: [B, 2], logits: push and pop.
        vectors: [B, m], pushed.

    Returns:
        The readings [B, m], and the new elements [B, k+1, 1+m].
    """
    if compilable(elements):
        result: tuple[Tensor, Tensor] = _compiled().step(elements, actions, vectors)
        return result
    push, pop = actions.sigmoid().unbind(1)
    strengths = update(elements[:, :, 0], push, pop)
    all_vectors = torch.cat([elements[:, :, 1:], vectors[:, None]], dim=1)
    reading = (reading_weights(strengths)[:, None] @ all_vectors)[:, 0]
    return reading, torch.cat([strengths[:, :, None], all_vectors], dim=2)


def step_from_hidden(elements: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One step from the hidden state of a controller.

    Args:
        elements: [B, k, 1+m], bottom first, each a strength and then a vector.
        hidden: [B, H].
        weight: [2+m, H], of the layer that gives the logits, and then the vector to push, not yet
            squashed by tanh.
        bias: [2+m].

    Returns:
        The readings [B, m], and the new elements [B, k+1, 1+m].
    """
    if compilable(elements):
        return one_step.step_from_hidden(_compiled(), 0, elements, hidden, weight, bias)
    controls = torch.nn.functional.linear(hidden, weight, bias)
    return step(elements, controls[:, :2], controls[:, 2:].tanh())


def step_lstm(
    gates: Tensor, weights: LSTMWeights, memory: tuple[Tensor, Tensor], reading: Tensor, elements: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`step_from_hidden` together with its controller, an LSTM; compiled only. See `one_step.step_lstm`."""
    return one_step.step_lstm(_compiled(), 0, gates, weights, memory, reading, elements)


def scan(
    strengths: Tensor, actions: Tensor, vectors: Tensor, *, logits: bool = False
) -> tuple[Tensor, Tensor]:
    """A whole sequence of steps.

    Args:
        strengths: [N, k], of the elements to start from.
        actions: [N, n, 2]: push and pop.
        vectors: [N, k+n, m], of the first elements and then of those pushed.
        logits: the actions are logits, to be turned into weights by a sigmoid.

    Returns:
        The readings [N, n, m], and the strengths after the last step, [N, k+n].
    """
    n = actions.shape[1]
    if n == 0:
        return vectors[:, :0], strengths
    if compilable(vectors):
        result: tuple[Tensor, Tensor] = _compiled().scan(strengths, actions, vectors, logits)
        return result
    push, pop = (actions.sigmoid() if logits else actions).unbind(2)
    weights = []
    for t in range(n):
        strengths = update(strengths, push[:, t], pop[:, t])
        later = n - t - 1
        weights.append(torch.nn.functional.pad(reading_weights(strengths), (0, later)))
    readings = torch.stack(weights, dim=1) @ vectors
    if not vectors.is_meta and not bool(
        vectors.isfinite().all()
    ):  # 0 nan is nan, but not for elements that are yet to come
        first = vectors.shape[1] - n
        known = [vectors[:, : first + t + 1] for t in range(n)]
        readings = torch.cat([w[:, None, : v.shape[1]] @ v for w, v in zip(weights, known, strict=True)], 1)
    return readings, strengths


def _above(strengths: Tensor) -> Tensor:
    """The sum of the strengths above each element, [N, k]."""
    inclusive = strengths.flip(1).cumsum(1).flip(1)
    return torch.nn.functional.pad(inclusive[:, 1:], (0, min(1, strengths.shape[1])))


@functools.cache
def _compiled() -> Any:
    """The compiled version, loaded when first needed."""
    return importlib.import_module("ndstack.ops.stratification.cpu")
