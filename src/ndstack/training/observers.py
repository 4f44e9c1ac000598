"""Observers, which are notified of the progress of a run: lines of JSON, TensorBoard."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ndstack.errors import TrainingError

if TYPE_CHECKING:
    from ndstack.settings.training import TrainingConfig
    from ndstack.training.checkpoint import Progress
    from ndstack.training.loop import Result


class Observer:
    """An observer that ignores everything; subclasses override the methods that they need."""

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Handle the start of a run, or its resumption."""

    def epoch(self, progress: Progress, steps: int) -> None:
        """Handle the start of an epoch, or its resumption."""

    def step(self, progress: Progress, loss: float) -> None:
        """Handle the end of a step."""

    def validated(self, progress: Progress) -> None:
        """Handle the end of an epoch, whose metrics are the last of `progress.history`."""

    def end(self, result: Result) -> None:
        """Handle the end of a complete run."""

    def close(self) -> None:
        """Release resources; this is the last call, also after an error."""


class Observers(Observer):
    """Several observers, all of which are notified."""

    def __init__(self, *observers: Observer) -> None:
        for name in ("start", "epoch", "step", "validated", "end", "close"):
            setattr(self, name, functools.partial(_call_all, [getattr(one, name) for one in observers]))


def _call_all(methods: Sequence[Callable[..., None]], *arguments: object) -> None:
    for method in methods:
        method(*arguments)


class MetricsLines(Observer):
    """An observer that prints the metrics of every epoch as one line of JSON."""

    def validated(self, progress: Progress) -> None:
        """Print one line."""
        print(json.dumps(progress.history[-1]), flush=True)


class TensorBoard(Observer):
    """An observer that writes the metrics of every epoch for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise TrainingError(
                "--tensorboard needs the package tensorboard: pip install 'ndstack[tensorboard]'"
            ) from None
        self.folder, self._make = folder, SummaryWriter
        self._writer: SummaryWriter | None = None

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Open the file after the epochs that are complete."""
        self._writer = self._make(str(self.folder), purge_step=progress.epoch + 1)

    def validated(self, progress: Progress) -> None:
        """Write every metric of the epoch."""
        assert self._writer is not None
        line = progress.history[-1]
        for name, value in line.items():
            if name != "epoch":
                self._writer.add_scalar(name.replace("_", "/", 1), value, line["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
