"""How parameters begin (section 5.8 and `ndstack.nn.models`).

Fully connected layers outside the controller begin with Xavier uniform weights and zero biases, layer norms
with ones and zeros (section 10.3), all else with uniform numbers in [-0.1, 0.1]. The layer that computes the
actions of a nondeterministic stack in a recurrent network is the exception: it learns faster if it, too,
begins uniform. In stack attention it begins as the text says. Networks over natural language (chapter 7)
begin uniform throughout, in [-0.05, 0.05].
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ndstack.settings.model import DEFAULTS, LayerInit
from ndstack.stacks import Several, Stack, Stratification, Superposition
from ndstack.stacks.base import AnyStack


@dataclasses.dataclass(frozen=True)
class _Begin:
    """How a layer begins: uniform, or Xavier for each of some blocks of its outputs, times a gain."""

    kind: LayerInit
    blocks: tuple[int, ...] = ()
    gain: float = 1.0


def initialize(
    network: torch.nn.Module,
    seed: int,
    *,
    layers: LayerInit = DEFAULTS.layers_init,
    nondeterministic_actions: LayerInit = DEFAULTS.actions_init,
    attention_actions: LayerInit = DEFAULTS.attention_actions_init,
    nondeterministic_pushes: LayerInit | None = DEFAULTS.pushes_init,
    tanh_gain: float = DEFAULTS.tanh_gain,
    stacks_apart: bool = DEFAULTS.stacks_apart,
    bound: float = DEFAULTS.init_bound,
) -> None:
    """Give every parameter its first value; torch's own random numbers are not touched.

    Args:
        network: any module.
        seed: the same seed gives the same numbers.
        layers: of fully connected layers.
        nondeterministic_actions: of those that compute the actions of a nondeterministic stack in a recurrent
            network.
        attention_actions: of those that compute the actions of any stack in stack attention.
        nondeterministic_pushes: of those that compute the vectors that recurrent networks push onto a
            nondeterministic stack; if not given, as all layers.
        tanh_gain: what Xavier weights are multiplied with in the layer whose tanh is pushed onto a
            stratification stack.
        stacks_apart: whether several superposition stacks count as having a layer each for Xavier's bound.
        bound: uniform numbers are from [-bound, bound].
    """
    generator = torch.Generator().manual_seed(seed)
    action_layers = {True: nondeterministic_actions, False: attention_actions}
    begins = _begins(network, layers, action_layers, nondeterministic_pushes, tanh_gain, stacks_apart)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.reset_parameters()
                continue
            begin = begins.get(module, _Begin(layers))
            xavier = isinstance(module, torch.nn.Linear) and layers == begin.kind == "xavier"
            for parameter in module.parameters(recurse=False):
                if not xavier:
                    _fill(parameter, bound, generator)
                elif parameter.dim() == 1:
                    parameter.zero_()
                else:
                    for block in torch.split(parameter, list(begin.blocks) or parameter.shape[0]):
                        _fill(block, begin.gain * math.sqrt(6.0 / sum(block.shape)), generator)


def _begins(
    network: torch.nn.Module,
    layers: LayerInit,
    action_layers: dict[bool, LayerInit],
    pushes_init: LayerInit | None,
    gain: float,
    apart: bool,
) -> dict[torch.nn.Module, _Begin]:
    """Return the layers between networks, or stack attention, and their stacks.

    Args as of `initialize`; the action layers are those of recurrent networks (True) and stack attention.
    """
    begins: dict[torch.nn.Module, _Begin] = {}
    for module in network.modules():
        stack, recurrent = getattr(module, "stack", None), hasattr(module, "controller")
        if not isinstance(stack, Stack):
            continue
        blocks = _blocks(stack) if apart else {}
        actions, pushed = _Begin(layers, blocks.get("actions", ())), _Begin(layers, blocks.get("pushed", ()))
        if not recurrent:
            actions = dataclasses.replace(actions, kind=action_layers[False])
        elif _nondeterministic(stack):
            actions, pushed = _Begin(action_layers[True]), _Begin(pushes_init or layers)
        elif isinstance(stack, Stratification):
            pushed = _Begin(layers, gain=gain)
        for name, begin in (("actions", actions), ("pushed", pushed)):
            layer = getattr(module, name, None)
            if isinstance(layer, torch.nn.Module):
                begins[layer] = begin
    return begins


def _fill(parameter: torch.Tensor, bound: float, generator: torch.Generator) -> None:
    """Uniform numbers, the same ones on every device."""
    numbers = torch.empty(parameter.shape, dtype=parameter.dtype)
    parameter.copy_(numbers.uniform_(-bound, bound, generator=generator))


def _blocks(stack: AnyStack) -> dict[str, tuple[int, ...]]:
    """Return how many actions and pushed numbers each of several superposition stacks has."""
    if not isinstance(stack, Superposition) or stack.synchronized:
        return {}
    return {"actions": (3,) * len(stack.sizes), "pushed": stack.sizes}


def _nondeterministic(stack: torch.nn.Module) -> bool:
    from ndstack.stacks import Nondeterministic

    parts = stack.stacks if isinstance(stack, Several) else [getattr(stack, "original", stack)]
    return any(isinstance(part, Nondeterministic) for part in parts)
