"""A recurrent network over symbols from the start, as one operation (see `ndstack.ops.fused.one_hot`)."""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.nn.fused import find
from ndstack.nn.networks import unmodified
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.networks.sharding import sharding
from ndstack.ops import fused


def read(network: Backbone, symbols: Tensor) -> Tensor | None:
    """Return the outputs before and after each of the symbols, as if they were one-hot vectors.

    Args:
        network: any, where compiled operations are possible at all.
        symbols: [B, n], int64.

    Returns:
        [B, n + 1, output_size]; None if the network has to be called, or a symbol is not known.
    """
    if type(network) is not StackRNN or unmodified.hooked(network) or not network.in_one_operation:
        return None
    stack, actions, batch = network.stack, network.actions, symbols.shape[0]
    assert isinstance(network.controller, torch.nn.RNNBase)
    assert stack is not None
    assert actions is not None
    plain = not network.output_reading and not network.bidirectional and network.batch_first
    if not plain or not batch or symbols.shape[1] < 2 or sharding():
        return None
    layers = [layer for layer in (actions, network.pushed) if layer is not None]
    controls = [weight for layer in layers for weight in (layer.weight, layer.bias)]
    own, dtype = network.controller.all_weights[0], actions.weight.dtype
    fresh = find("lstm", stack).fresh(stack, batch, dtype)
    if fresh is None or not all(_fits(tensor, dtype) for tensor in (*own, *controls, *fresh.first)):
        return None
    return fused.one_hot.run(fresh, symbols, network.input_size, own, controls)


def _fits(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Return whether it is an ordinary tensor of this dtype on a CPU."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.dtype is dtype and tensor.is_cpu
