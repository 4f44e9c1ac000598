"""Says that kernels are being compiled, if that takes more than a moment.

The line goes to the logger "ndstack" as a warning, which Python prints on standard error unless told
otherwise; `logging.getLogger("ndstack").setLevel("ERROR")` silences it. Kernels that come from the cache are
not compiled, and nothing is said.
"""

import logging
import threading
import time
from typing import Any

from numba.core import event

PATIENCE = 2.0
"""Seconds that may pass without a word."""

COMPILED: list[tuple[str, float]] = []
"""What this process has compiled, and the seconds that it took."""

_log = logging.getLogger("ndstack")


class _Listener(event.Listener):
    """Hears of every compilation, those within another included; numba allows one at a time."""

    def __init__(self) -> None:
        self.depth = 0
        self.began = 0.0
        self.name = ""
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """A function is being compiled."""
        self.depth += 1
        if self.depth > 1:
            return
        function = getattr(event.data.get("dispatcher"), "py_func", None)
        if str(getattr(function, "__module__", "")).startswith("ndstack."):
            self.began, self.name = time.monotonic(), _name(function)
            self.timer = threading.Timer(PATIENCE, _say, [self.name, place(event.data["dispatcher"])])
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """It is done."""
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None
            COMPILED.append((self.name, time.monotonic() - self.began))


def _name(function: Any) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def place(dispatcher: Any) -> str | None:
    """The folder in which the compiled code is kept, if it is."""
    path: str | None = getattr(getattr(dispatcher, "_cache", None), "cache_path", None)
    return path


def _say(name: str, place: str | None) -> None:
    kept = f"once, and kept in {place}" if place else "in every process, since there is no place to keep it"
    _log.warning(
        "ndstack: compiling %s for this machine, which takes up to some minutes (%s); "
        "`ndstack warmup` compiles everything ahead of time",
        name,
        kept,
    )


def watch() -> None:
    """Listen from now on."""
    event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
