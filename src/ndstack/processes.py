"""Processes that end with the one that started them, and how many of them a machine has room for.

A process that starts others puts its own identifier into their environment (`tied_children`). They read it
when they import ndstack, before anything that takes long, and call `follow_parent`: on Linux the operating
system ends them with their parent, and on every system a thread ends a process whose parent has ended.
"""

from __future__ import annotations

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

from ndstack.errors import NdstackError

LAUNCHER = "NDSTACK_LAUNCHER"
"""The environment variable that names the process to follow."""
LOOK = 0.5
"""Seconds between looks at whether the parent is still there."""
_PR_SET_PDEATHSIG = 1

COMPILING = 300 << 20
"""Bytes that a process needs besides its modules: for compiling kernels, for data and for results. Measured:
50 MB with compiled kernels in the cache, 275 MB without."""
COPIES = 6
"""How often parameters are in memory: themselves, gradients, two moments of Adam, two for a checkpoint."""
GIGABYTE = 1 << 30
MOST_THREADS = 256
"""Of one process, unless it has more than a quarter as many cores; libgomp ends the process at thousands."""


@contextlib.contextmanager
def tied_children() -> Iterator[None]:
    """Processes that are started inside will end with this one."""
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
    """End with the process that the environment names, if that is our parent; called on `import ndstack`."""
    launcher = os.environ.pop(LAUNCHER, "")
    if not launcher.isdecimal() or os.name != "posix":
        return
    parent = int(launcher)
    if os.getppid() != parent:
        if sys.orig_argv[-1] == "--multiprocessing-fork":  # it was our parent, and has ended already
            os._exit(1)
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until something can be saved, end without a traceback
    die_with_parent()
    threading.Thread(target=_watch, args=(parent,), name="ndstack-parent", daemon=True).start()


def die_with_parent() -> None:
    """Ask the operating system to end this process with its parent; only Linux can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_room(count: int, option: str, parameters: int = 0) -> None:
    """Refuse processes that the memory has no room for; warn on standard error of more than there are cores.

    Args:
        count: how many processes are asked for.
        option: what asks for them, such as "--workers".
        parameters: bytes of the parameters that each of them trains.
    """
    have, each, use = free_memory(), _need(parameters), process_capacity(parameters)
    if have is not None and count > max(1, have // each):
        need, free = f"{count * each / GIGABYTE:,.1f}", f"{have / GIGABYTE:,.1f}"
        raise NdstackError(
            f"{option} {count} given: so many processes need about {need} GB of memory "
            f"({each / GIGABYTE:.1f} GB each), and {free} GB are free; use {option} {use}"
        )
    if count > cores():
        _warn(
            f"{option} {count} given, but there are {cores()} cores, and more processes are not faster; use "
            f"{option} {use}"
        )


def process_capacity(parameters: int = 0) -> int:
    """How many processes are worth starting here: one a core, and no more than the memory has room for."""
    have = free_memory()
    return cores() if have is None else max(1, min(cores(), have // _need(parameters)))


def _need(parameters: int) -> int:
    """Bytes that one more process like this one takes."""
    return own_memory() + COMPILING + COPIES * parameters


def check_threads(count: int, processes: int = 1) -> None:
    """Refuse more threads than can be started; warn on standard error of more than there are cores.

    Args:
        count: threads of each process.
        processes: how many processes there are.
    """
    use = max(1, cores() // processes)
    if count > max(MOST_THREADS, 4 * cores()):
        raise NdstackError(f"--threads {count} given, but there are {cores()} cores; use --threads {use}")
    if count > cores():
        _warn(
            f"--threads {count} given, but there are {cores()} cores, and more threads are not faster; use "
            f"--threads {use}"
        )


def _warn(message: str) -> None:
    print(f"ndstack: warning: {message}", file=sys.stderr)


def own_memory() -> int:
    """Bytes that this process has for itself alone, without what it shares with others."""
    found = _field(Path("/proc/self/status"), r"^RssAnon:\s+(\d+) kB")
    if found is not None:
        return found << 10
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def free_memory() -> int | None:
    """Bytes that new processes may take: of the machine and of the container; None if nobody can tell."""
    free = _field(Path("/proc/meminfo"), r"^MemAvailable:\s+(\d+) kB")
    if free is None:
        try:  # macOS does not say what is free
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None
    return min([free << 10, *_free_in_containers()])


def _free_in_containers() -> Iterator[int]:
    """What the control groups of this process leave."""
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
