"""How many threads the compiled kernels use, and how they share a batch.

The kernels release the interpreter's lock, and a call splits the batch once, for a whole sequence.

After a parallel operation, torch's OpenMP threads keep their cores busy for some milliseconds while they wait
for the next one. Threads of our own would compete with them for the cores: a training step took up to 1.7
times as long. So the kernels run on torch's own threads, which are given their parts by the OpenMP library
that torch has loaded. Where there is none, and in a forked process, ordinary threads do the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ndstack.errors import NdstackError
from ndstack.ops.runtime.lazy import LazyModule

shared_calls = LazyModule("ndstack.ops.runtime.shared_calls")

__all__ = ["get_num_threads", "set_num_threads"]

WORTH_A_THREAD = 5_000_000
"""About how many multiply-adds take as long as waking a thread on a busy machine."""

COST_OF_EXPONENTIAL = 16
"""About how many multiply-adds take as long as one exponential."""

_wanted: int | None = None
_pool: tuple[int, ThreadPoolExecutor] | None = None

_LIBRARIES = ("libgomp.so.1", "libiomp5.so", "libomp.so")
_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class OpenMP:
    """The OpenMP library that torch has loaded; OSError if it is none that we know."""

    def __init__(self) -> None:
        if not hasattr(os, "RTLD_NOLOAD"):
            raise OSError("this system cannot say what is loaded")
        for name in _LIBRARIES:
            try:
                self._library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
                self._asked = ctypes.PyDLL(name, mode=os.RTLD_NOLOAD)  # keeps the interpreter's lock
                break
            except OSError:
                continue
        else:
            raise OSError("no OpenMP library is loaded")
        self._library.GOMP_parallel.argtypes = [_PARALLEL, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._library.GOMP_parallel.restype = None
        self._regions: dict[int, Any] = {}
        names = self._library.omp_get_thread_num, self._library.omp_get_num_threads
        self.questions = [ctypes.cast(name, ctypes.c_void_p).value or 0 for name in names]
        """The addresses of the functions that tell the number of a thread, and of all threads."""
        self.parallel = ctypes.cast(self._library.GOMP_parallel, ctypes.c_void_p).value or 0
        """The address of the function that has all threads call another one."""

    def run(self, parts: int, work: Callable[[int], None]) -> None:
        """Call work(part) for each part, at the same time as far as there are threads."""
        errors: list[BaseException] = []

        def some(_: object) -> None:
            try:
                first, threads = self._asked.omp_get_thread_num(), self._asked.omp_get_num_threads()
                for part in range(first, parts, threads):
                    work(part)
            except BaseException as error:
                errors.append(error)

        self._library.GOMP_parallel(_PARALLEL(some), None, parts, 0)
        if errors:
            raise errors[0]

    def run_compiled(self, parts: int, region: int, given: int) -> None:
        """Call the C function at an address on as many threads as there are parts, with what it is given."""
        known = self._regions.get(region)
        if known is None:
            known = self._regions[region] = _PARALLEL(region)
        self._library.GOMP_parallel(known, given, parts, 0)


def _loaded() -> OpenMP | None:
    try:
        return OpenMP()
    except (OSError, AttributeError):
        return None


_openmp = _loaded()


def openmp() -> OpenMP | None:
    """Return the OpenMP library on whose threads kernels run; None if they run on ordinary threads."""
    return _openmp


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


@contextlib.contextmanager
def sharing_everything() -> Iterator[None]:
    """Return a context in which small calls are shared, too, so that everything is compiled that it takes."""
    global WORTH_A_THREAD
    before, WORTH_A_THREAD = WORTH_A_THREAD, 1
    try:
        yield
    finally:
        WORTH_A_THREAD = before


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

    def some(part: int) -> None:
        work(bounds[part], bounds[part + 1], *arguments)

    if _openmp is not None:
        compiled = hasattr(work, "overloads")
        if not compiled or not shared_calls.call(_openmp, work, batch, parts, arguments):
            _openmp.run(parts, some)
        return
    others = [_threads(parts - 1).submit(some, part) for part in range(1, parts)]
    some(0)
    for other in others:
        other.result()


def _threads(count: int) -> ThreadPoolExecutor:
    """Return a pool of at least `count` threads."""
    global _pool
    if _pool is None or _pool[0] < count:
        _pool = count, ThreadPoolExecutor(count, thread_name_prefix="ndstack")
    return _pool[1]


def _forget() -> None:
    """Forget all threads in a forked process, which has none; OpenMP would wait for them forever."""
    global _pool, _openmp
    _pool = _openmp = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
