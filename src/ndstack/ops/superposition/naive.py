"""The superposition stack's update as tensor functions (section 3.3.2).

A stack is its cells, top first, [N, h, m]. With V_{t-1}[0] = v_t the step is

    V_t[i] = push_t V_{t-1}[i-1] + noop_t V_{t-1}[i] + pop_t V_{t-1}[i+1]     (1 <= i <= h + 1)

and the reading is V_t[1]. Below the last cell everything is 0; a depth limit K makes V_t[i] = 0
for i > K. Weights are ordered (push, noop, pop), as in the text.

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

NO_LIMIT = 2**62


def update(cells: Tensor, weights: Tensor, vectors: Tensor, depth: int | None) -> Tensor:
    """The cells after one step.

    Args:
        cells: [N, h, m].
        weights: [N, 3], (push, noop, pop).
        vectors: [N, m], pushed.
        depth: the greatest number of cells to keep, or None.

    Returns:
        [N, h', m], where h' is h + 1, or the depth if that is less.
    """
    height = cells.shape[1] + 1
    if depth is not None:
        height = min(height, depth)
    push, noop, pop = weights[:, :, None, None].unbind(1)
    below = torch.nn.functional.pad(cells, (0, 0, 0, 2))
    above = torch.cat([vectors[:, None], cells], dim=1)
    return push * above[:, :height] + noop * below[:, :height] + pop * below[:, 1 : height + 1]


def step(cells: Tensor, actions: Tensor, vectors: Tensor, depth: int | None) -> tuple[Tensor, Tensor]:
    """One step of G stacks side by side, each with actions of its own.

    Args:
        cells: [B, G, h, m].
        actions: [B, 3*G], logits: (push, noop, pop) for each stack in turn.
        vectors: [B, G*m], pushed.
        depth: the greatest number of cells to keep, or None.

    Returns:
        The readings, [B, G*m], and the new cells, [B, G, h', m].
    """
    if compilable(cells):
        result: tuple[Tensor, Tensor] = _compiled().step(cells, actions, vectors, depth or NO_LIMIT)
        return result
    batch, stacks, _, m = cells.shape
    weights = actions.reshape(batch * stacks, 3).softmax(-1)
    new = update(cells.flatten(0, 1), weights, vectors.reshape(batch * stacks, m), depth)
    return new[:, 0].reshape(batch, stacks * m), new.reshape(batch, stacks, new.shape[1], m)


def step_from_hidden(
    cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, depth: int | None
) -> tuple[Tensor, Tensor]:
    """One step of G stacks side by side, from the hidden state of a controller.

    Args:
        cells: [B, G, h, m].
        hidden: [B, H].
        weight: [3*G + G*m, H], of the layer that gives the logits, and then the vectors to push,
            not yet squashed by a sigmoid.
        bias: [3*G + G*m].
        depth: the greatest number of cells to keep, or None.

    Returns:
        The readings, [B, G*m], and the new cells, [B, G, h', m].
    """
    if compilable(cells):
        return one_step.step_from_hidden(_compiled(), depth or NO_LIMIT, cells, hidden, weight, bias)
    controls = torch.nn.functional.linear(hidden, weight, bias)
    logits = 3 * cells.shape[1]
    return step(cells, controls[:, :logits], controls[:, logits:].sigmoid(), depth)


def step_lstm(
    gates: Tensor,
    weights: LSTMWeights,
    memory: tuple[Tensor, Tensor],
    reading: Tensor,
    cells: Tensor,
    depth: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`step_from_hidden` together with its controller, an LSTM; compiled only. See `one_step.step_lstm`."""
    return one_step.step_lstm(_compiled(), depth or NO_LIMIT, gates, weights, memory, reading, cells)


def scan(
    cells: Tensor,
    actions: Tensor,
    vectors: Tensor,
    depth: int | None,
    *,
    logits: bool = False,
    only_readings: bool = False,
) -> tuple[Tensor, Tensor]:
    """A whole sequence of steps of N stacks.

    Args:
        cells: [N, h, m], the stacks to start from.
        actions: [N, n, 3], (push, noop, pop).
        vectors: [N, n, m], pushed.
        depth: the greatest number of cells to keep, or None.
        logits: the actions are logits, to be turned into weights by a softmax.
        only_readings: the cells returned do not matter. Those too deep to be read within the
            remaining steps are then left out, which halves the work.

    Returns:
        The readings [N, n, m], and the cells after the last step (the top one, at most, if
        `only_readings`).
    """
    n = vectors.shape[1]
    if n == 0:
        return vectors, cells
    if compilable(cells):
        result: tuple[Tensor, Tensor] = _compiled().scan(
            cells, actions, vectors, depth or NO_LIMIT, logits, only_readings
        )
        return result
    weights = actions.softmax(-1) if logits else actions
    readings = []
    for t in range(n):
        limits = [limit for limit in (depth, n - t if only_readings else None) if limit is not None]
        cells = update(cells, weights[:, t], vectors[:, t], min(limits, default=None))
        readings.append(cells[:, 0])
    return torch.stack(readings, dim=1), cells


@functools.cache
def _compiled() -> Any:
    """The compiled version, loaded when first needed."""
    return importlib.import_module("ndstack.ops.superposition.cpu")
