"""Whether a part of a network is as it was made, so that its weights say all that it does.

If they do, several parts run as one operation. A layer that was replaced (LoRA, quantisation), or that has
hooks (pruning, weight normalisation of the older kind, those of users), has to be called instead.
Parametrisations do not count as changes, since `layer.weight` is what they compute.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch.nn.utils import parametrize

from ndstack.ops.runtime import torch_internals


def hooked(part: torch.nn.Module | None) -> bool:
    """Return whether something is to happen when the part is called besides what its class says."""
    if part is None:
        return False
    return "forward" in part.__dict__ or torch_internals.has_hooks(part)


def is_linear(layer: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    """Return whether it is a linear layer with a bias, and nothing else."""
    return _class(layer) is torch.nn.Linear and getattr(layer, "bias", None) is not None and not hooked(layer)


def is_recurrent(controller: torch.nn.Module, inputs: int, units: int, layers: int) -> bool:
    """Return whether it is a recurrent network of torch of these sizes, as `make_controller` makes them."""
    if _class(controller) not in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN) or hooked(controller):
        return False
    assert isinstance(controller, torch.nn.RNNBase)
    sizes = (controller.input_size, controller.hidden_size, controller.num_layers)
    plain = controller.bias and not controller.bidirectional and not controller.proj_size
    tanh = controller.mode != "RNN_RELU"
    return sizes == (inputs, units, layers) and plain and tanh


def _class(part: torch.nn.Module) -> type:
    """Return the class of a part, or the one it had before it was parametrised."""
    kind = type(part)
    if kind.__module__.startswith("torch.nn.modules.") or not parametrize.is_parametrized(part):
        return kind
    return kind.__mro__[1]
