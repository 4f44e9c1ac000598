"""A progress bar with an estimate, for work that takes more than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], object]
"""Is called with the number of steps done since the last call."""


def no_progress(done: int) -> None:
    """Nobody looks."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Advance]:
    """Yields a function to call with the number of steps done; draws nothing off a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
