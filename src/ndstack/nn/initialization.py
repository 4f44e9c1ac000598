"""How parameters begin (section 5.8 and `ndstack.nn.models`).

Fully connected layers outside the controller begin with Xavier uniform weights and zero biases, layer norms
with ones and zeros (section 10.3), all else with uniform numbers in [-0.1, 0.1]. The layer that computes the
actions of a nondeterministic stack is the exception: it learns faster if it, too, begins uniform. Networks
over natural language (chapter 7) begin uniform throughout, in [-0.05, 0.05].
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from ndstack.stacks import Several, Stack

LayerInit = Literal["xavier", "uniform"]


def initialize(
    network: torch.nn.Module,
    seed: int,
    *,
    layers: LayerInit = "xavier",
    nondeterministic_actions: LayerInit = "uniform",
    bound: float = 0.1,
) -> None:
    """Give every parameter its first value; torch's own random numbers are not touched.

    Args:
        network: any module.
        seed: the same seed gives the same numbers.
        layers: of fully connected layers.
        nondeterministic_actions: of those that compute the actions of a nondeterministic stack.
        bound: uniform numbers are from [-bound, bound].
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = _action_layers(network) if nondeterministic_actions == "uniform" else set()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.reset_parameters()
                continue
            xavier = isinstance(module, torch.nn.Linear) and layers == "xavier" and module not in uniform
            for parameter in module.parameters(recurse=False):
                if not xavier:
                    _fill(parameter, bound, generator)
                elif parameter.dim() == 1:
                    parameter.zero_()
                else:
                    _fill(parameter, math.sqrt(6.0 / sum(parameter.shape)), generator)


def _fill(parameter: torch.Tensor, bound: float, generator: torch.Generator) -> None:
    """Uniform numbers, the same ones on every device."""
    numbers = torch.empty(parameter.shape, dtype=parameter.dtype)
    parameter.copy_(numbers.uniform_(-bound, bound, generator=generator))


def _action_layers(network: torch.nn.Module) -> set[torch.nn.Module]:
    """The layers that compute the actions of nondeterministic stacks."""
    found = set()
    for module in network.modules():
        stack, actions = getattr(module, "stack", None), getattr(module, "actions", None)
        if isinstance(stack, Stack) and isinstance(actions, torch.nn.Module) and _nondeterministic(stack):
            found.add(actions)
    return found


def _nondeterministic(stack: torch.nn.Module) -> bool:
    from ndstack.stacks import Nondeterministic

    parts = stack.stacks if isinstance(stack, Several) else [getattr(stack, "original", stack)]
    return any(isinstance(part, Nondeterministic) for part in parts)
