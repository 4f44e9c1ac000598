"""The progress of a sweep: a live table on a terminal, otherwise lines of JSON."""

import json
import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ndstack.errors import NdstackError
from ndstack.experiments.estimate import show_seconds
from ndstack.experiments.sweep import Watcher
from ndstack.experiments.sweep_folder import COMPLETE, SweepFolder
from ndstack.experiments.trials import Trial
from ndstack.training.run import best_epoch

MOST_ROWS = 20


class JSONLines(Watcher):
    """A watcher that prints a line for every trial that starts or ends."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.left = folder, None  # type: tuple[SweepFolder, float | None]
        self.total = self.done = 0

    def begin(self, trials: Sequence[Trial], done: int, known: int) -> None:
        """Print the number of trials."""
        self.total, self.done = len(trials), done + known
        self._print(event="begin", trials=self.total, done=done, known=known)

    def started(self, trial: Trial, attempt: int) -> None:
        """Print one line."""
        self._print(event="start", trial=trial.id, attempt=attempt)

    def ended(self, trial: Trial, state: str, message: str) -> None:
        """Print one line, with the best validation result."""
        self.done += state in COMPLETE
        values: dict[str, object] = {"message": message} if message else {}
        if state == "done":
            values |= best_of(self.folder, trial)
        left = None if self.left is None else round(self.left)
        self._print(event=state, trial=trial.id, **values, done=self.done, of=self.total, seconds_left=left)

    def tick(self, running: Sequence[Trial], left: float | None) -> None:
        """Keep the estimate."""
        self.left = left

    def _print(self, **values: object) -> None:
        print(json.dumps(values), flush=True)


class LiveTable(Watcher):
    """A watcher that draws the running trials, the last ones that ended, and the remaining time."""

    def __init__(self, folder: SweepFolder, title: str) -> None:
        self.folder, self.title = folder, title
        self.live = Live(console=Console(stderr=True), refresh_per_second=2, transient=True)
        self.counts = dict.fromkeys(("done", "known", "failed", "given up", "not needed", "again"), 0)
        self.total = 0
        self.began = time.monotonic()
        self.last: list[tuple[str, str, str]] = []

    def begin(self, trials: Sequence[Trial], done: int, known: int) -> None:
        """Start drawing."""
        self.total, self.counts["done"], self.counts["known"] = len(trials), done, known
        self.live.start()

    def ended(self, trial: Trial, state: str, message: str) -> None:
        """Keep the last few trials."""
        self.counts[state] += 1
        best = best_of(self.folder, trial) if state == "done" else {}
        value = best.get("difference", best.get("perplexity"))
        self.last = [*self.last[-4:], (trial.id, state, message if value is None else f"{value:.4f}")]

    def tick(self, running: Sequence[Trial], left: float | None) -> None:
        """Draw the table."""
        table = Table("trial", "epoch", "validation", "s/epoch", box=None)
        for name, state, note in self.last:
            table.add_row(Text(name, style="dim"), Text(state, style="dim"), Text(note, style="dim"))
        for trial in running[:MOST_ROWS]:
            table.add_row(Text(trial.id), *self._row(trial))
        if len(running) > MOST_ROWS:
            table.add_row(f"and {len(running) - MOST_ROWS} more")
        counts = self.counts
        spent = show_seconds(time.monotonic() - self.began)
        rest = "unknown" if left is None else show_seconds(left)
        line = f"{self.title}: {counts['done']} of {self.total} done, {len(running)} running"
        line += f", {counts['known']} known from tables" if counts["known"] else ""
        for state in ("failed", "given up", "not needed"):
            line += f", {counts[state]} {state}" if counts[state] else ""
        complete = counts["done"] + counts["known"]
        bar = ProgressBar(total=max(1, self.total), completed=complete, width=40)
        self.live.update(Group(table, Text(f"{line}; {spent} so far, left: {rest}"), bar))

    def close(self) -> None:
        """Clear the table."""
        self.live.stop()

    def _row(self, trial: Trial) -> tuple[str, str, str]:
        try:
            run = self.folder.run(trial)
            history = [] if run is None else run.metrics()
            seconds = {} if run is None else run.seconds()
        except NdstackError:  # a file is just being written
            return "", "", ""
        most = trial.config.training.most_epochs
        if not history:
            return f"1/{most}", "", ""
        last = history[-1]
        value = last.get("validation_difference", last.get("validation_perplexity", 0.0))
        pace = sum(seconds.values()) / max(1, len(seconds))
        epoch = min(len(history) + 1, most)  # after the last epoch, the model is measured
        return f"{epoch}/{most}", f"{value:.4f}", f"{pace:.1f}"


def best_of(folder: SweepFolder, trial: Trial) -> dict[str, float]:
    """Return the best validation result of a trial."""
    run = folder.run(trial)
    history = [] if run is None else run.metrics()
    if not history:
        return {}
    best = best_epoch(history)
    kept = {
        name: best[f"validation_{name}"]
        for name in ("difference", "perplexity")
        if f"validation_{name}" in best
    }
    return {"epochs": len(history), "best_epoch": best["epoch"], **kept}


def choose_watcher(folder: SweepFolder, title: str, *, quiet: bool, as_json: bool) -> Watcher:
    """Return a watcher that draws a table on a terminal, and otherwise prints lines of JSON."""
    if quiet:
        return Watcher()
    return JSONLines(folder) if as_json or not sys.stderr.isatty() else LiveTable(folder, title)
