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


def fits(x: object, size: int, weight: Tensor) -> TypeGuard[Tensor]:
    """Return whether compiled operations can read an input that torch traces.

    Args:
        x: which should be [B, n, size], with n > 1, and of the weights' dtype.
        size: how many numbers there should be at each position.
        weight: one of the layer's weights.
    """
    return (
        isinstance(x, Tensor)
        and enters_graph(x)
        and x.dtype == weight.dtype
        and x.dim() == 3
        and x.shape[0] > 0
        and x.shape[1] > 1
        and x.shape[2] == size
    )


def lengths_fit(lengths: object, x: Tensor) -> bool:
    """Return whether a graph can read the lengths of strings: those in a tensor, one for each.

    A list would be part of the graph, which would have to be made again for other lengths.
    """
    return (
        isinstance(lengths, Tensor)
        and lengths.device.type == "cpu"
        and lengths.dim() == 1
        and lengths.shape[0] == x.shape[0]
        and not lengths.is_floating_point()
        and not lengths.is_complex()
    )


def mask_fits(mask: object, rows: int, columns: int) -> bool:
    """Return whether a graph can read a mask, [rows, columns], or None."""
    if mask is None:
        return True
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        return False
    return mask.device.type == "cpu" and mask.shape == (rows, columns)


def recurrent(network: Recurrent) -> bool:
    """Return whether a network, as it is now, can be part of a graph, and let it carry its LSTM's weights.

    It is called while the graph is made, and not traced. A network that was itself given to `torch.compile`
    is not part of one, since it would gain nothing.
    """
    stack, controller = network.stack, network.controller
    if (
        not _plain(network)
        or stack is None
        or not network.in_one_operation
        or not find("lstm", stack).enters_graphs(stack)
    ):
        return False
    layers = [layer for layer in (controller, network.actions, network.pushed) if layer is not None]
    if not all(type(layer) in (torch.nn.LSTM, torch.nn.Linear) for layer in layers):
        return False
    network.held = controller._parameters
    return True


def attention(layer: StackAttention) -> bool:
    """Return whether a layer of stack attention, as it is now, can be part of a graph; as `recurrent`."""
    return layer.stack.scans_in_graphs and not unmodified.hooked(layer.stack) and _plain(layer)


def _plain(network: torch.nn.Module) -> bool:
    """Return whether a network is part of another one, and has ordinary parameters that stay in place."""
    if torch_internals.traced_alone(network) or transformed() or sharding():
        return False
    weights = list(network.parameters())
    plain = all(type(weight) is torch.nn.Parameter for weight in weights)
    return plain and len({weight.dtype for weight in weights}) == 1
