"""Progress on a terminal: the epoch, its batches, the value to watch, the best so far, the time left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

from ndstack.training.observers import Observer

if TYPE_CHECKING:
    from ndstack.training.checkpoint import Progress
    from ndstack.training.config import TrainingConfig
    from ndstack.training.loop import Result


class Terminal(Observer):
    """Two lines: all epochs and the one at work; below them the metrics."""

    def __init__(self, title: str, watched: str = "difference") -> None:
        self.title, self.key = title, f"validation_{watched}"
        self.watched = "difference to the lower bound" if watched == "difference" else watched
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self.epochs = self.bar.add_task(title, total=None, note="")
        self.batches = self.bar.add_task("  batches", total=None, note="")

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Begin to draw."""
        self.bar.update(self.epochs, total=config.max_epochs, completed=progress.epoch)
        self._show(progress)
        self.bar.start()

    def epoch(self, progress: Progress, steps: int) -> None:
        """A new epoch."""
        self.bar.reset(self.batches, total=steps, completed=progress.step)
        self.bar.update(self.batches, description=f"  epoch {progress.epoch + 1}")

    def step(self, progress: Progress, loss: float) -> None:
        """One batch more."""
        self.bar.update(self.batches, completed=progress.step)

    def validated(self, progress: Progress) -> None:
        """One epoch more."""
        self.bar.update(self.epochs, completed=progress.epoch)
        self._show(progress)

    def end(self, result: Result) -> None:
        """Clear the lines."""
        self.close()

    def close(self) -> None:
        """Clear the lines, whatever happened."""
        self.bar.stop()

    def _show(self, progress: Progress) -> None:
        schedule = progress.schedule
        if not progress.history:
            return
        last = progress.history[-1][self.key]
        best = next(line[self.key] for line in progress.history if line["epoch"] == schedule.best_epoch)
        note = f"{self.watched} {last:.4f}, best {best:.4f} (epoch {schedule.best_epoch}), "
        self.bar.update(self.epochs, note=note + f"learning rate {schedule.learning_rate:g}")
