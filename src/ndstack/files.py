"""Files and folders that appear in one move, and folders that one process at a time may write to."""

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ndstack.errors import BusyError, DatasetError, NdstackError

LOCK = ".lock"
HALF = ".tmp"
"""How the names of files end that are being written."""
DRAFT = ".ndstack-draft-"
"""What stands in the names of folders that are being made."""
_LEFTOVER = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(HALF)}")
_OLD_LEFTOVER = re.compile(r"\..+\.(?:json|jsonl|safetensors|svg|png|md|csv|html)\.[a-z0-9_]{8}")
"""Without the ending, as they were called at first."""


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
    for attempts_left in (2, 1, 0):
        draft = _write_draft(path, content)
        try:
            draft.replace(path)
            return
        except FileNotFoundError:  # who holds the folder has just tidied it up
            if not attempts_left:
                raise
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _write_draft(path: Path, content: bytes) -> Path:
    """The content on the disk, under another name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=HALF)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_mask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def is_leftover(path: Path) -> bool:
    """Whether a file is what `replace` leaves behind if its process is killed."""
    if _LEFTOVER.fullmatch(path.name):
        return path.is_file() and not path.is_symlink()
    if not _OLD_LEFTOVER.fullmatch(path.name) or path.is_symlink():
        return False
    return path.is_file() and path.stat().st_mode & 0o777 == 0o600


def tidy(*folders: Path) -> None:
    """Remove what killed processes left behind in folders; only for who holds them (`locked`)."""
    for folder in folders:
        with contextlib.suppress(OSError):  # a folder that is not there, or not ours to change
            for path in [entry for entry in folder.iterdir() if is_leftover(entry)]:
                path.unlink(missing_ok=True)


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
        _remove_drafts(folder)
        with _hold_draft(folder) as draft:
            yield draft
            draft.chmod(0o777 & ~_mask())
            os.replace(draft, folder)  # noqa: PTH105 - replaces an empty folder in one step
    except OSError as error:
        raise DatasetError(f"cannot write {what} {folder}: {error.strerror or error}") from None


@contextlib.contextmanager
def _hold_draft(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the one to be made; it is locked, so that nobody takes it for a leftover."""
    while True:
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}{DRAFT}", dir=folder.parent))
        handle = os.open(draft, os.O_RDONLY)
        if _try_lock(handle) and draft.exists():
            break
        os.close(handle)  # another process was about to remove it
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(handle)


def _remove_drafts(folder: Path) -> None:
    """Remove drafts of a folder whose processes were killed."""
    name = re.escape(f".{folder.name[:100]}{DRAFT}")
    for draft in list(folder.parent.iterdir()):
        if not re.fullmatch(rf"{name}[a-z0-9_]{{8}}", draft.name) or draft.is_symlink():
            continue
        with contextlib.suppress(OSError):
            handle = os.open(draft, os.O_RDONLY)
            try:
                if _try_lock(handle):
                    shutil.rmtree(draft, ignore_errors=True)
            finally:
                os.close(handle)


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
