"""Stratification stacks: compiled on a CPU, Triton or plain torch elsewhere.

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
from ndstack.ops.stratification import reference

if TYPE_CHECKING:
    from ndstack.ops.stratification import cpu, gpu
else:
    cpu = LazyModule("ndstack.ops.stratification.cpu")
    gpu = LazyModule("ndstack.ops.stratification.gpu")


def step(elements: Tensor, actions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Make one step.

    Args:
        elements: [B, k, 1+m], bottom first, each a strength and then a vector.
        actions: [B, 2], logits: push and pop.
        vectors: [B, m], pushed.

    Returns:
        The readings [B, m], and the new elements [B, k+1, 1+m].
    """
    if compilable(elements):
        return stack_step.step(cpu, NO_LIMIT, elements, actions, vectors)
    return reference.step(elements, actions, vectors)


def step_from_hidden(elements: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Make one step from the hidden state of a controller.

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
        return stack_step.step(cpu, NO_LIMIT, elements, hidden, weight, bias)
    controls = torch.nn.functional.linear(hidden, weight, bias)
    return reference.step(elements, controls[:, :2], controls[:, 2:].tanh())


def scan(
    strengths: Tensor, actions: Tensor, vectors: Tensor, *, logits: bool = False
) -> tuple[Tensor, Tensor]:
    """Make a whole sequence of steps.

    Args:
        strengths: [N, k], of the elements to start from.
        actions: [N, n, 2]: push and pop.
        vectors: [N, k+n, m], of the first elements and then of those pushed.
        logits: the actions are logits, to be turned into weights by a sigmoid.

    Returns:
        The readings [N, n, m], and the strengths after the last step, [N, k+n].
    """
    if actions.shape[1] == 0:
        return vectors[:, :0], strengths
    if backends.choose(vectors.device) == "triton":
        return gpu.scan(strengths, actions, vectors, logits)
    if enters_graph(vectors):
        readings, strengths = in_graph.call(
            "ndstack.ops.stratification.cpu", (int(logits),), strengths, actions, vectors
        )
        return readings, strengths
    if compilable(vectors):
        return cpu.scan(strengths, actions, vectors, logits)
    return reference.scan(strengths, actions, vectors, logits)
