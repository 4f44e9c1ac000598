"""Observers, which are told what happens in a run: a terminal, lines of JSON, TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndstack.errors import TrainingError

if TYPE_CHECKING:
    from ndstack.settings.training import TrainingConfig
    from ndstack.training.checkpoint import Progress
    from ndstack.training.loop import Result


class Observer:
    """Ignores everything; others override what they need."""

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """A run begins or is resumed."""

    def epoch(self, progress: Progress, steps: int) -> None:
        """An epoch begins or is resumed."""

    def step(self, progress: Progress, loss: float) -> None:
        """A step is done."""

    def validated(self, progress: Progress) -> None:
        """An epoch is done; its metrics are the last of `progress.history`."""

    def end(self, result: Result) -> None:
        """The run is complete."""

    def close(self) -> None:
        """Nothing more will come."""


class Observers(Observer):
    """Several at once."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.start(config, progress)

    def epoch(self, progress: Progress, steps: int) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.epoch(progress, steps)

    def step(self, progress: Progress, loss: float) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.step(progress, loss)

    def validated(self, progress: Progress) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.validated(progress)

    def end(self, result: Result) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.end(result)

    def close(self) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.close()


class MetricsLines(Observer):
    """Prints the metrics of every epoch as one line of JSON."""

    def validated(self, progress: Progress) -> None:
        """One line."""
        print(json.dumps(progress.history[-1]), flush=True)


class TensorBoard(Observer):
    """Writes the metrics of every epoch for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise TrainingError(
                "--tensorboard needs the package tensorboard: pip install 'ndstack[tensorboard]'"
            ) from None
        self.folder, self._make = folder, SummaryWriter
        self._writer: Any = None

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Continue after the epochs that are complete."""
        self._writer = self._make(str(self.folder), purge_step=progress.epoch + 1)

    def validated(self, progress: Progress) -> None:
        """Every number of the epoch."""
        line = progress.history[-1]
        for name, value in line.items():
            if name != "epoch":
                self._writer.add_scalar(name.replace("_", "/", 1), value, line["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
