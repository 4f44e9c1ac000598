"""How many threads the compiled kernels use, and how they share a batch.

The kernels release the interpreter's lock, so ordinary threads are enough; they sleep when there is nothing
to do and never compete with torch's own. A call splits the batch once, for a whole sequence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from ndstack.errors import NdstackError

__all__ = ["get_num_threads", "set_num_threads"]

WORTH_A_THREAD = 5_000_000
"""About how many multiply-adds take as long as waking a thread on a busy machine."""

_wanted: int | None = None
_pool: tuple[int, ThreadPoolExecutor] | None = None


def set_num_threads(count: int | None) -> None:
    """Set the number of threads of the compiled kernels; None means as many as torch uses."""
    global _wanted
    if count is not None and count < 1:
        raise NdstackError(f"{count} threads given, expected 1 or more, or None for torch's number")
    _wanted = count


def get_wanted() -> int | None:
    """Return the number that `set_num_threads` was last given."""
    return _wanted


def get_num_threads() -> int:
    """Return the number of threads of the compiled kernels."""
    return torch.get_num_threads() if _wanted is None else _wanted


def share(batch: int, work: Callable[..., None], cost: float = 1e9, *arguments: object) -> None:
    """Call work(first, last, *arguments) on parts of range(batch), at the same time on several threads.

    Args:
        batch: how many sequences there are.
        work: does the sequences first..last-1, without holding the interpreter's lock, and writes its results
            into its arguments.
        cost: multiply-adds of the whole call; a small call is not worth a second thread.
        arguments: passed on to every call.
    """
    parts = min(get_num_threads(), batch, 1 + int(cost / WORTH_A_THREAD))
    if parts <= 1:
        work(0, batch, *arguments)
        return
    bounds = [batch * part // parts for part in range(parts + 1)]
    pool = _threads(parts - 1)
    others = [pool.submit(work, bounds[j], bounds[j + 1], *arguments) for j in range(1, parts)]
    work(bounds[0], bounds[1], *arguments)
    for other in others:
        other.result()


def _threads(count: int) -> ThreadPoolExecutor:
    """Return a pool of at least `count` threads."""
    global _pool
    if _pool is None or _pool[0] < count:
        _pool = count, ThreadPoolExecutor(count, thread_name_prefix="ndstack")
    return _pool[1]


def _forget() -> None:
    """Forget the pool in a forked process, which has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
