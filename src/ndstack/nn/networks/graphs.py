"""When a layer with a stack is part of a graph of `torch.compile`, and when the graph breaks there.

It is part of the graph on a CPU, from the start of strings of one length, if what it does is an operation
that `ndstack.ops.runtime.in_graph` can call. Everywhere else it is called as it is, between two graphs.

Dynamo does not look at a `torch.nn.LSTM`, not even for its weights. It does look at a dictionary, so a
network carries the one in which its LSTM has them, until its controller is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from ndstack.nn.fused import find
from ndstack.nn.networks import unmodified
from ndstack.nn.networks.sharding import sharding
from ndstack.ops.runtime import torch_internals
from ndstack.ops.runtime.tracing import enters_graph, transformed

if TYPE_CHECKING:
    from ndstack.nn.networks.attention import StackAttention
    from ndstack.nn.networks.recurrent import Recurrent


def fits(x: object, size: int) -> TypeGuard[Tensor]:
    """Return whether compiled operations can read an input that torch traces: [B, n, size], not empty."""
    return (
        isinstance(x, Tensor)
        and enters_graph(x)
        and x.dim() == 3
        and x.shape[0] > 0
        and x.shape[1] > 1
        and x.shape[2] == size
    )


def recurrent(network: Recurrent, dtype: torch.dtype) -> bool:
    """Return whether a network, as it is now, can be part of a graph, and let it carry its LSTM's weights.

    It is called while the graph is made, and not traced.

    Args:
        network: which is not what `torch.compile` was given: alone it would not gain from a graph.
        dtype: of its input.
    """
    stack, controller = network.stack, network.controller
    if stack is None or not network.in_one_operation or not find("lstm", stack).enters_graphs(stack):
        return False
    layers = [layer for layer in (controller, network.actions, network.pushed) if layer is not None]
    if not all(type(layer) in (torch.nn.LSTM, torch.nn.Linear) for layer in layers):
        return False
    network.held = controller._parameters
    return _plain(network, dtype)


def attention(layer: StackAttention, dtype: torch.dtype) -> bool:
    """Return whether a layer of stack attention, as it is now, can be part of a graph; as `recurrent`."""
    return layer.stack.scans_in_graphs and not unmodified.hooked(layer.stack) and _plain(layer, dtype)


def _plain(network: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Return whether a network is part of another one, and has ordinary parameters that stay in place."""
    if torch_internals.traced_alone(network) or transformed() or sharding():
        return False
    return all(
        type(weight) is torch.nn.Parameter and weight.dtype == dtype for weight in network.parameters()
    )
