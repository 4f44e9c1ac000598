"""Files that are replaced in one move, and folders that one process at a time may write to."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ndstack.errors import BusyError

LOCK = ".lock"


def real(path: str | Path) -> Path:
    """The absolute path without links. Links in a circle are found where it is used, as an `OSError`."""
    return Path(os.path.realpath(path))


def replace(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never half of it.

    Links are followed. What is not a file, such as /dev/stdout, is written to.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(real(path), content)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # and not the name that it is written under
        raise


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; it is let go when the process ends, however it ends."""
    path = folder / LOCK
    with path.open("a+") as file:
        if not _try_lock(file.fileno()):
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise BusyError(f"{folder} is in use by process {owner}; wait for it, or stop it first")
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _try_lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
