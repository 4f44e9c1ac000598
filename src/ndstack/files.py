"""Files and folders that appear in one move, and folders that one process at a time may write to."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ndstack.errors import BusyError, DatasetError, NdstackError

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
        elif real(path).is_symlink():  # links in a circle lead nowhere
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
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
        Path(name).chmod(0o666 & ~_mask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mask() -> int:
    """The permissions that the user does not give to what is new."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_new(folder: Path) -> None:
    """Raise an error in one line unless a folder can be made there: it is new, or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder} exists and is not an empty folder; choose another or remove it")


@contextlib.contextmanager
def new_folder(folder: Path, what: str) -> Iterator[Path]:
    """Make a new or empty folder, all of it or nothing: what is yielded, once filled, takes its place.

    Args:
        folder: where it will be.
        what: is made, in the words of an error.
    """
    folder = real(folder)
    check_new(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}-", dir=folder.parent))
        try:
            yield draft
            draft.chmod(0o777 & ~_mask())
            os.replace(draft, folder)  # noqa: PTH105 - replaces an empty folder in one step
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise DatasetError(f"cannot write {what} {folder}: {error.strerror or error}") from None


def read_text(path: Path, error: type[NdstackError] = NdstackError) -> str:
    """The content of a UTF-8 text file; what is wrong with it is raised as the given error, in one line."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not UTF-8 text: {problem.reason} at byte {problem.start}") from None


def read_bytes(path: Path, error: type[NdstackError] = NdstackError) -> bytes:
    """The same for the content of any file."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from None


def read_json(path: Path, error: type[NdstackError] = NdstackError) -> Any:
    """The same for what a JSON file says."""
    content = read_bytes(path, error)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is not JSON: {' '.join(str(problem).split())}") from None


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
