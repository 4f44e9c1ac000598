"""Announce that a function is being compiled, if that takes more than a moment.

The message goes to the logger "ndstack" as a warning, which Python prints on standard error by default;
`logging.getLogger("ndstack").setLevel("ERROR")` silences it. A function that is found in the cache is not
compiled, and not announced.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable

from ndstack.ops.runtime import numba_internals

PATIENCE = 2.0
"""How many seconds a compilation may take before it is announced."""

COMPILED: list[tuple[str, float]] = []
"""The functions that this process has compiled, and the seconds that each took."""

LISTENERS: list[Callable[[object], None]] = []
"""Called with numba's dispatcher when the compilation of a function that Python calls starts."""

_log = logging.getLogger("ndstack")


class Listener:
    """Hears of every compilation, including those within another; numba allows one at a time."""

    def __init__(self) -> None:
        self.depth = 0
        self.began = 0.0
        self.name = ""
        self.timer: threading.Timer | None = None
        self.collects = False

    def started(self, dispatcher: object) -> None:
        """A function is being compiled."""
        self.depth += 1
        if self.depth > 1:
            return
        # The compiler makes millions of objects that live until it is done: looking for garbage takes a sixth
        # of its time and finds nothing.
        self.collects = gc.isenabled()
        gc.disable()
        for listener in LISTENERS:
            listener(dispatcher)
        function = getattr(dispatcher, "py_func", None)
        module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
        if str(module).startswith("ndstack."):
            self.began, self.name = time.monotonic(), f"{module.rpartition('.')[2]}.{name}"
            self.timer = threading.Timer(
                PATIENCE, _say, [self.name, numba_internals.cache_folder(dispatcher)]
            )
            self.timer.daemon = True
            self.timer.start()

    def ended(self, dispatcher: object) -> None:
        """The function has been compiled."""
        self.depth -= 1
        if self.depth == 0 and self.collects:
            gc.enable()
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None
            COMPILED.append((self.name, time.monotonic() - self.began))


def _say(name: str, folder: str | None) -> None:
    kept = f"once, and kept in {folder}" if folder else "in every process, since there is no place to keep it"
    _log.warning(
        "ndstack: compiling %s for this machine, which takes up to some minutes (%s); "
        "`ndstack compile` compiles everything ahead of time",
        name,
        kept,
    )


def watch() -> None:
    """Listen from now on."""
    listener = Listener()
    numba_internals.listen_to_compiler(listener.started, listener.ended)
