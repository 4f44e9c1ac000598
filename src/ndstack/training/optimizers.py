"""The optimizers of the recipe, and one update of the parameters: clipping, then a step."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ndstack.ops import adam
from ndstack.ops.adam import AdamSettings
from ndstack.settings.training import TrainingConfig

if TYPE_CHECKING:
    from ndstack.ops.adam import Moments


_STATE = ("step", "exp_avg", "exp_avg_sq")
"""What torch calls the number of steps, m and v."""


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`, with the same state, which clips and updates by one compiled call on a CPU."""

    _moments: Moments | None = None
    """Where parameters and moments are; None before the first step."""
    _held: Sequence[Tensor] = ()
    """The tensors of the state, by which one that was loaded is recognised."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, learning_rate, fused=True)

    def clip_and_step(self, limit: float) -> float | None:
        """Clip, make a step, and return the norm before; None, and nothing happens, if torch has to do it."""
        (group,) = self.param_groups
        parameters: list[Tensor] = group["params"]
        gradients = [parameter.grad for parameter in parameters]
        given = [gradient for gradient in gradients if gradient is not None]
        if len(given) < len(parameters) or not self._ready(parameters):
            return None
        assert self._moments is not None
        first, second = group["betas"]
        settings = AdamSettings(float(group["lr"]), first, second, group["eps"])
        return self._moments.clip_and_update(given, limit, settings)

    def _ready(self, parameters: Sequence[Tensor]) -> bool:
        """Return whether compiled code can make the next step, after preparing it if need be."""
        held = [tensor for parameter in parameters for tensor in self.state[parameter].values()]
        same = len(held) == len(self._held) and all(map(operator.is_, held, self._held))
        if self._moments is not None and same and self._moments.ready():
            return True
        return self._prepare(parameters)

    def _prepare(self, parameters: Sequence[Tensor]) -> bool:
        self._moments, self._held = None, ()
        if not all(map(adam.updatable, parameters)) or len({one.dtype for one in parameters}) != 1:
            return False
        for parameter in parameters:
            if not self.state[parameter]:
                zero = torch.zeros((), dtype=torch.float32, device="cpu")
                values = (zero, torch.zeros_like(parameter), torch.zeros_like(parameter))
                self.state[parameter].update(zip(_STATE, values, strict=True))
        states = [self.state[parameter] for parameter in parameters]
        if len({int(state["step"]) for state in states}) != 1:
            return False  # parameters that were without a gradient at times
        counters, means, squares = ([state[name] for state in states] for name in _STATE)
        self._moments = adam.make_moments(parameters, means, squares, counters)
        self._held = [tensor for state in states for tensor in state.values()]
        return True


def make_optimizer(parameters: Sequence[torch.nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Return the optimizer of a configuration."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, config.learning_rate)
    return Adam(parameters, config.learning_rate)


def update(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    clip: float | None,
    learning_rate: float,
) -> float:
    """Clip the gradients, make a step, and return their norm; if it is not finite, no step is made."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    limit = clip or math.inf
    norm = optimizer.clip_and_step(limit) if isinstance(optimizer, Adam) else None
    if norm is None:
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit).item()
        if math.isfinite(norm):
            optimizer.step()
    return norm
