"""Which requests are still wanted, and how many are worked on at a time.

A page has an identifier of its own. Its newest request supersedes the earlier ones, which end at their next
`check`, waiting or not; so do all of them when the page is told to stop.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from ndstack.errors import NdstackError

Check = Callable[[], None]
"""Raises `SupersededError` when nobody waits for the answer any more."""

WORKERS = 3
"""How many answers are worked on at a time."""
WAITING = 16
"""How many may wait for their turn."""
PAGES = 1000
"""How many pages are remembered."""


class SupersededError(NdstackError):
    """A request whose answer is not wanted any more."""


class TooManyError(NdstackError):
    """A request that comes when too many wait."""


def always_wanted() -> None:
    """The check of a request that is always wanted."""


class RequestQueue:
    """Takes requests in."""

    def __init__(self, workers: int = WORKERS, waiting: int = WAITING) -> None:
        self._slots = threading.BoundedSemaphore(workers)
        self._places = threading.BoundedSemaphore(workers + waiting)
        self._lock = threading.Lock()
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._closed = False

    def register(self, page: str | None) -> Check:
        """A new request of a page, which makes those before it unwanted; None for one that stands alone."""
        number = None if page is None else self._count(page)

        def check() -> None:
            if self._closed:
                raise SupersededError("the server is about to end")
            if page is not None and self._newest.get(page) != number:
                raise SupersededError("the request was stopped, or another came after it")

        return check

    def close(self) -> None:
        """Nothing is wanted any more, whoever asked for it: the server ends."""
        self._closed = True

    def stop(self, page: str) -> None:
        """Nothing that this page has asked for is wanted any more."""
        self._count(page)

    def _count(self, page: str) -> int:
        with self._lock:
            number = self._newest.pop(page, 0) + 1
            self._newest[page] = number
            while len(self._newest) > PAGES:
                self._newest.popitem(last=False)
            return number

    @contextlib.contextmanager
    def working(self, check: Check) -> Iterator[None]:
        """Wait for one of the workers, as long as the request is wanted."""
        if not self._places.acquire(blocking=False):
            raise TooManyError("too many requests are waiting; stop some, or try again in a while")
        try:
            while not self._slots.acquire(timeout=0.05):
                check()
            try:
                check()
                yield
            finally:
                self._slots.release()
        finally:
            self._places.release()
