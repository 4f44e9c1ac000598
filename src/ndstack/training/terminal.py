"""Progress on a terminal: a validation metric, its best value so far, epochs, batches and remaining time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from ndstack.training.observers import Observer
from ndstack.training.run import best_epoch

if TYPE_CHECKING:
    from ndstack.settings.training import TrainingConfig
    from ndstack.training.checkpoint import Progress
    from ndstack.training.loop import Result


class Terminal(Observer):
    """An observer that draws a line of metrics, a bar for all epochs, and one for the current epoch."""

    def __init__(self, title: str, watched: str = "difference", console: Console | None = None) -> None:
        self.title, self.key = title, f"validation_{watched}"
        self.watched = "difference to the lower bound" if watched == "difference" else watched
        self.bars = Bars(
            TextColumn("{task.description:12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.epochs = self.bars.add_task("epochs", total=None)
        self.batches = self.bars.add_task("batches", total=None)
        self.stages = 1
        self.note = Text(f"{title}: the first epoch")
        console = console or Console(stderr=True)
        self.live = Live(Group(self.note, self.bars), console=console, transient=True, refresh_per_second=4)

    def start(self, config: TrainingConfig, progress: Progress) -> None:
        """Start drawing."""
        most = max(config.most_epochs, progress.epoch)  # the limit may be lower than what a resumed run has
        self.bars.update(self.epochs, total=most, completed=progress.epoch)
        self.stages = len(config.stages) + 1
        self._show(progress)
        self.live.start()

    def epoch(self, progress: Progress, steps: int) -> None:
        """Start the bar of an epoch."""
        self.bars.reset(self.batches, total=steps, completed=progress.step)
        self.bars.update(self.batches, description=f"epoch {progress.epoch + 1}")

    def step(self, progress: Progress, loss: float) -> None:
        """Advance the bar of the epoch."""
        self.bars.update(self.batches, completed=progress.step)

    def validated(self, progress: Progress) -> None:
        """Advance the bar of all epochs, and show the metrics."""
        self.bars.update(self.epochs, completed=progress.epoch)
        self._show(progress)

    def end(self, result: Result) -> None:
        """Clear the lines."""
        self.close()

    def close(self) -> None:
        """Clear the lines, also after an error."""
        self.live.stop()

    def _show(self, progress: Progress) -> None:
        schedule = progress.schedule
        if not progress.history:
            return
        last, best = progress.history[-1], best_epoch(progress.history)
        stage = f" (stage {last['stage']} of {self.stages})" if self.stages > 1 else ""
        self.note.plain = (
            f"{self.title}{stage}: {self.watched} {last[self.key]:.4f}, best {best[self.key]:.4f} "
            f"(epoch {best['epoch']}), "
            f"learning rate {schedule.learning_rate:g}"
        )
