"""Superposition stacks: compiled on a CPU, Triton or plain torch elsewhere.

This module is all that the rest of the package may use of this folder. `reference.py` has the equations in
plain torch; `loops.py` (whole sequences) and `step_loops.py` (single steps) are the compiled version, of
which `cpu.py` makes differentiable operations; `gpu.py` has the scan in Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ndstack.ops.runtime import backends, in_graph, stack_step
from ndstack.ops.runtime.autograd import compilable
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.stack_step import NO_LIMIT
from ndstack.ops.runtime.tracing import enters_graph
from ndstack.ops.superposition import reference

if TYPE_CHECKING:
    from ndstack.ops.superposition import cpu, gpu
else:
    cpu = LazyModule("ndstack.ops.superposition.cpu")
    gpu = LazyModule("ndstack.ops.superposition.gpu")


def step(cells: Tensor, actions: Tensor, vectors: Tensor, depth: int | None) -> tuple[Tensor, Tensor]:
    """Make one step of G stacks side by side, each with actions of its own.

    Args:
        cells: [B, G, h, m].
        actions: [B, 3*G], logits: (push, noop, pop) for each stack in turn.
        vectors: [B, G*m], pushed.
        depth: the greatest number of cells to keep, or None.

    Returns:
        The readings, [B, G*m], and the new cells, [B, G, h', m].
    """
    if compilable(cells):
        return stack_step.step(cpu, depth or NO_LIMIT, cells, actions, vectors)
    return reference.step(cells, actions, vectors, depth)


def step_from_hidden(
    cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, depth: int | None
) -> tuple[Tensor, Tensor]:
    """Make one step of G stacks side by side, from the hidden state of a controller.

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
        return stack_step.step(cpu, depth or NO_LIMIT, cells, hidden, weight, bias)
    controls = torch.nn.functional.linear(hidden, weight, bias)
    logits = 3 * cells.shape[1]
    return reference.step(cells, controls[:, :logits], controls[:, logits:].sigmoid(), depth)


def scan(
    cells: Tensor,
    actions: Tensor,
    vectors: Tensor,
    depth: int | None,
    *,
    logits: bool = False,
    only_readings: bool = False,
) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps of N stacks.

    Args:
        cells: [N, h, m], the stacks to start from.
        actions: [N, n, 3], (push, noop, pop).
        vectors: [N, n, m], pushed.
        depth: the greatest number of cells to keep, or None.
        logits: the actions are logits, to be turned into weights by a softmax.
        only_readings: the cells returned do not matter. Those too deep to be read within the
            remaining steps are then left out, which halves the work.

    Returns:
        The readings [N, n, m], and the cells after the last step (the top one, at most, if `only_readings`).
    """
    if vectors.shape[1] == 0:
        return vectors, cells
    if backends.choose(cells.device) == "triton":
        return gpu.scan(cells, actions, vectors, depth or NO_LIMIT, logits, only_readings)
    if enters_graph(cells):
        numbers = (depth or NO_LIMIT, int(logits), int(only_readings))
        readings, cells = in_graph.call("ndstack.ops.superposition.cpu", numbers, cells, actions, vectors)
        return readings, cells
    if compilable(cells):
        return cpu.scan(cells, actions, vectors, depth or NO_LIMIT, logits, only_readings)
    return reference.scan(cells, actions, vectors, depth, logits, only_readings)
