"""The superposition stack's update as tensor functions (section 3.3.2).

A stack is its cells, top first, [N, h, m]. With V_{t-1}[0] = v_t the step is

    V_t[i] = push_t V_{t-1}[i-1] + noop_t V_{t-1}[i] + pop_t V_{t-1}[i+1]     (1 <= i <= h + 1)

and the reading is V_t[1]. Below the last cell everything is 0; a depth limit K makes V_t[i] = 0
for i > K. Weights are ordered (push, noop, pop), as in the text.

This is plain torch, for any device; `__init__.py` describes the arguments.
"""

import torch
from torch import Tensor


def update(cells: Tensor, weights: Tensor, vectors: Tensor, depth: int | None) -> Tensor:
    """Return the cells after one step.

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
    """Make one step of G stacks side by side."""
    batch, stacks, _, m = cells.shape
    weights = actions.reshape(batch * stacks, 3).softmax(-1)
    new = update(cells.flatten(0, 1), weights, vectors.reshape(batch * stacks, m), depth)
    return new[:, 0].reshape(batch, stacks * m), new.reshape(batch, stacks, new.shape[1], m)


def scan(
    cells: Tensor, actions: Tensor, vectors: Tensor, depth: int | None, logits: bool, only_readings: bool
) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps of N stacks."""
    weights, n = actions.softmax(-1) if logits else actions, vectors.shape[1]
    readings = []
    for t in range(n):
        limits = [limit for limit in (depth, n - t if only_readings else None) if limit is not None]
        cells = update(cells, weights[:, t], vectors[:, t], min(limits, default=None))
        readings.append(cells[:, 0])
    return torch.stack(readings, dim=1), cells
