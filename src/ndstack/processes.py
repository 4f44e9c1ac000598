"""Processes that end together with their parent, and the number of processes that fit on a machine.

A process that starts others puts its own identifier into their environment (`tied_children`). They read it
when they import ndstack, before anything that takes long, and call `follow_parent`: on Linux the operating
system ends them with their parent, and on every system a thread ends a process whose parent has ended.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ndstack.errors import NdstackError, warn

LAUNCHER = "NDSTACK_LAUNCHER"
"""The environment variable with the identifier of the process to follow."""
LOOK = 0.5
"""The number of seconds between checks whether the parent still runs."""
_PR_SET_PDEATHSIG = 1

COMPILING = 300 << 20
"""The bytes that a process needs besides its modules, for compiling kernels, for data and for results. The
measured values are 50 MB with compiled kernels in the cache, and 275 MB without."""
COPIES = 6
"""The copies of parameters in memory: parameters, gradients, two moments of Adam, two for a checkpoint."""
GIGABYTE = 1 << 30
MOST_THREADS = 256
"""The largest number of threads of a process with up to 64 cores; libgomp ends a process with thousands."""


@contextlib.contextmanager
def tied_children() -> Iterator[None]:
    """Make the processes that are started inside this context end with this process."""
    before = os.environ.get(LAUNCHER)
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LAUNCHER, None)
        else:
            os.environ[LAUNCHER] = before


def follow_parent() -> None:
    """End this process with its parent if the environment names it; called by `import ndstack`."""
    launcher = os.environ.pop(LAUNCHER, "")
    if not launcher.isdecimal() or os.name != "posix":
        return
    parent = int(launcher)
    if os.getppid() != parent:
        if sys.orig_argv[-1] == "--multiprocessing-fork":  # the parent has already ended
            os._exit(1)
        return
    # Until there is something to save, an interrupted process should end without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    threading.Thread(target=_watch, args=(parent,), name="ndstack-parent", daemon=True).start()


def die_with_parent() -> None:
    """Ask the operating system to end this process with its parent, which only Linux can do."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_room(count: int, option: str, parameters: int = 0) -> None:
    """Refuse more processes than fit into memory, and warn on standard error if there are more than cores.

    Args:
        count: the requested number of processes.
        option: the option that requests them, such as "--workers".
        parameters: the bytes of the parameters that each process trains.
    """
    have, each, use = free_memory(), _need(parameters), process_capacity(parameters)
    if have is not None and count > max(1, have // each):
        need, free = f"{count * each / GIGABYTE:,.1f}", f"{have / GIGABYTE:,.1f}"
        raise NdstackError(
            f"{option} {count} given: {count} processes need about {need} GB of memory "
            f"({each / GIGABYTE:.1f} GB each), and {free} GB are free; use {option} {use}"
        )
    if count > cores():
        warn(
            f"{option} {count} given, but there are {cores()} cores, and more processes are not faster; use "
            f"{option} {use}"
        )


def process_capacity(parameters: int = 0) -> int:
    """Return how many processes are worth starting: one per core, as far as the memory is sufficient."""
    have = free_memory()
    return cores() if have is None else max(1, min(cores(), have // _need(parameters)))


def _need(parameters: int) -> int:
    """Return how many bytes one more process like this one takes."""
    return own_memory() + COMPILING + COPIES * parameters


def check_threads(count: int, processes: int = 1) -> None:
    """Refuse more threads than can be started, and warn on standard error if there are more than cores.

    Args:
        count: the number of threads of each process.
        processes: the number of processes.
    """
    use = max(1, cores() // processes)
    if count > max(MOST_THREADS, 4 * cores()):
        raise NdstackError(f"--threads {count} given, but there are {cores()} cores; use --threads {use}")
    if count > cores():
        warn(
            f"--threads {count} given, but there are {cores()} cores, and more threads are not faster; use "
            f"--threads {use}"
        )


def own_memory() -> int:
    """Return how many bytes of memory this process does not share with others."""
    found = _field(Path("/proc/self/status"), r"^RssAnon:\s+(\d+) kB")
    if found is not None:
        return found << 10
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def free_memory() -> int | None:
    """Return how many bytes the machine and its containers have free for new processes; None if unknown."""
    free = _field(Path("/proc/meminfo"), r"^MemAvailable:\s+(\d+) kB")
    if free is None:
        try:  # macOS does not report free memory, so all of it counts
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None
    return min([free << 10, *_free_in_containers()])


def _free_in_containers() -> Iterator[int]:
    """Yield the free bytes of each control group of this process."""
    root = Path("/sys/fs/cgroup")
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if controllers
            else ("memory.max", "memory.current")
        )
        for folder in {root / controllers / place.lstrip("/"), root / controllers}:
            limit, used = (_field(folder / name, r"^(\d+)$") for name in names)
            cache = _field(folder / "memory.stat", r"^(?:total_)?inactive_file (\d+)$") or 0
            if limit is not None and used is not None:
                yield max(0, limit - used + cache)


def _field(path: Path, pattern: str) -> int | None:
    found = re.search(pattern, _read(path), re.MULTILINE)
    return None if found is None else int(found[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
