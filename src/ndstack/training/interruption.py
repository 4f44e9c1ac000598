"""Interruption by Ctrl-C or SIGTERM: the step is completed and the run saved; a second one stops at once."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
TOGETHER = 1.0
"""Signals within this number of seconds count as one: both a terminal and a parent process may send them."""


class Interruption:
    """A context in which the first signal is only recorded, as `wanted`."""

    def __init__(self) -> None:
        self.wanted = False
        self._first = 0.0
        self._old: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.wanted:
            self.wanted, self._first = True, now
        elif now - self._first > TOGETHER:
            raise KeyboardInterrupt


class PassedOn(Interruption):
    """A context in which signals are passed on to the processes that this one started; they save, and end."""

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        started = multiprocessing.active_children()
        for process in started:
            process.terminate()
        if not started:
            raise KeyboardInterrupt
