"""The queue of requests: which requests are still wanted, and how many are processed at a time.

Each page has an identifier. Its newest request supersedes its earlier ones, which end at their next `check`,
whether they are waiting or being processed. All requests of a page end in this way when the page asks to
stop. A page numbers its requests, because a busy server may receive them in another order.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from ndstack.errors import NdstackError

Check = Callable[[], None]
"""A function that raises `SupersededError` if the answer is no longer wanted."""

WORKERS = 3
"""The number of requests that are processed at a time."""
WAITING = 16
"""The largest number of requests that wait."""
PAGES = 1000
"""The largest number of pages that are remembered."""


class SupersededError(NdstackError):
    """A request whose answer is no longer wanted."""


class TooManyError(NdstackError):
    """A request that arrives when too many are waiting."""


def always_wanted() -> None:
    """Do nothing: the check of a request that is always wanted."""


class RequestQueue:
    """The requests of all pages."""

    def __init__(self, workers: int = WORKERS, waiting: int = WAITING) -> None:
        self._slots = threading.BoundedSemaphore(workers)
        self._places = threading.BoundedSemaphore(workers + waiting)
        self._lock = threading.Lock()
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._closed = False

    def register(self, page: str | None, number: int | None = None) -> Check:
        """Register a request, which supersedes earlier ones of the same page, and return its check.

        Args:
            page: the page; a request without one supersedes none.
            number: the number that the page gave to the request; None for the next number.
        """
        own = None if page is None else self._count(page, number)

        def check() -> None:
            if self._closed:
                raise SupersededError("the server is shutting down")
            if page is not None and self._newest.get(page) != own:
                raise SupersededError("the request was stopped, or superseded by another")

        return check

    def close(self) -> None:
        """End all requests, because the server shuts down."""
        self._closed = True

    def stop(self, page: str, number: int | None = None) -> None:
        """End all requests of a page, up to a number if one is given."""
        self._count(page, number)

    def _count(self, page: str, number: int | None) -> int:
        with self._lock:
            newest = self._newest.pop(page, 0)
            own = newest + 1 if number is None else number
            self._newest[page] = max(own, newest)
            while len(self._newest) > PAGES:
                self._newest.popitem(last=False)
            return own

    @contextlib.contextmanager
    def working(self, check: Check) -> Iterator[None]:
        """Wait until the request can be processed, as long as it is wanted."""
        if not self._places.acquire(blocking=False):
            raise TooManyError("too many requests are waiting; stop some, or try again later")
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
