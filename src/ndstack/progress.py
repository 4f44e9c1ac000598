"""A progress bar with an estimate of the remaining time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], object]
"""A function that is called with the number of steps done since the last call."""


def no_progress(done: int) -> None:
    """Ignore the progress."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Advance]:
    """Yield a function to call with the number of steps done; a bar is drawn on terminals only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
