"""The processes that train one model together: each has its share of a step, and all see the sum."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ndstack.training.task import Nats

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Signals(NamedTuple):
    """What the processes exchange in a step, besides gradients."""

    loss: float
    nats: float
    symbols: int
    stop: bool
    save: bool


class Group:
    """This process and the others; without a Fabric, there are no others."""

    def __init__(self, fabric: Fabric | None) -> None:
        self.fabric = fabric
        self.rank = 0 if fabric is None else fabric.global_rank
        self.alone = fabric is None or fabric.world_size == 1

    def seed(self, seed: int) -> None:
        """Seed torch's generator on the model's device; `torch.manual_seed` seeds all devices, slowly."""
        torch.default_generator.manual_seed(seed)
        if self.fabric is not None and self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which computations have the precision of the run."""
        return contextlib.nullcontext() if self.fabric is None else self.fabric.autocast()

    def sum_up(self, parameters: Sequence[torch.nn.Parameter], mine: Signals) -> Signals:
        """Replace gradients with their sums over all processes, and return those of the signals."""
        if self.alone:
            return mine
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        parts = [parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]
        total = self._sum(torch.cat([*parts, parts[0].new_tensor([float(value) for value in mine])]))
        sizes = [*(parameter.numel() for parameter in parameters), len(mine)]
        *grads, signals = torch.split(total, sizes)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad.view_as(parameter)
        loss, nats, symbols, stop, save = signals.tolist()
        return Signals(loss, nats, round(symbols), stop > 0, save > 0)

    def total(self, mine: Nats) -> Nats:
        """Return the sum over all processes."""
        if self.alone:
            return mine
        nats, symbols, correct = self._sum(torch.tensor(mine, dtype=torch.float64)).tolist()
        return Nats(nats, round(symbols), round(correct))

    def gather(self, mine: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return what each process has, in order."""
        if self.alone:
            return [mine]
        assert self.fabric is not None
        everyone: list[dict[str, Tensor]] = [{}] * self.fabric.world_size
        torch.distributed.all_gather_object(everyone, mine)
        return everyone

    def wait(self) -> None:
        """Wait until all processes have come to this point."""
        if self.fabric is not None:
            self.fabric.barrier()

    def _sum(self, values: Tensor) -> Tensor:
        assert self.fabric is not None
        total = self.fabric.all_reduce(values.to(self.fabric.device), reduce_op="sum")
        assert isinstance(total, Tensor)
        return total
