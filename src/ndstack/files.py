"""Atomic writing of files and folders, reading with errors in one line, and locks on folders."""

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ndstack.errors import BusyError, DatasetError, NdstackError, first_problem

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
T = TypeVar("T")

LOCK = ".lock"
HALF = ".tmp"
"""The suffix of files that are being written."""
DRAFT = ".ndstack-draft-"
"""A part of the names of folders that are being made."""
_LEFTOVER = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(HALF)}")


def real_path(path: str | Path) -> Path:
    """Return the absolute path without links; a circle of links causes an `OSError` when the path is used."""
    return Path(os.path.realpath(path))


def replace(path: Path, content: str | bytes) -> None:
    """Write a file atomically: a reader, also after a crash, finds the old content or the new, never a part.

    Text is written as UTF-8. Links are followed. If the path is not a regular file, such as /dev/stdout, the
    content is written to it.
    """
    content = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        elif real_path(path).is_symlink():  # a circle of links
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        else:
            _replace(real_path(path), content)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # errors name the path given, not the draft
        raise


def _replace(path: Path, content: bytes) -> None:
    for attempts_left in (2, 1, 0):
        draft = _write_draft(path, content)
        try:
            draft.replace(path)
            return
        except FileNotFoundError:  # the process that holds the folder has just removed the draft
            if not attempts_left:
                raise
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _write_draft(path: Path, content: bytes) -> Path:
    """Write the content to a new file beside the path, and return its name."""
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
    """Return whether a file was left behind by `replace` in a process that was killed."""
    return bool(_LEFTOVER.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def tidy(*folders: Path) -> None:
    """Remove the files that killed processes left behind; the caller must hold the folders (`locked`)."""
    for folder in folders:
        with contextlib.suppress(OSError):  # the folder may be missing, or not writable
            for path in [entry for entry in folder.iterdir() if is_leftover(entry)]:
                path.unlink(missing_ok=True)


def _mask() -> int:
    """Return the permissions that the user denies to new files (the umask)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_new(folder: Path) -> None:
    """Raise an error unless the path is new or an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder} exists and is not an empty folder; choose another or remove it")


@contextlib.contextmanager
def new_folder(folder: Path, what: str) -> Iterator[Path]:
    """Make a folder completely or not at all: the draft that is yielded takes its place at the end.

    Args:
        folder: the path of the new folder; an empty folder is replaced.
        what: what the folder is, for errors, such as "the data set".
    """
    folder = real_path(folder)
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
    """Yield a hidden folder beside the new one, locked so that no other process removes it as a leftover."""
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
    """Return the content of a UTF-8 text file; problems are raised as the given error, in one line."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not UTF-8 text: {problem.reason} at byte {problem.start}") from None


def read_bytes(path: Path, error: type[NdstackError] = NdstackError) -> bytes:
    """Return the content of a file; problems are raised as the given error, in one line."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}") from None


def read_json(path: Path, error: type[NdstackError] = NdstackError) -> object:
    """Return the value in a JSON file; problems are raised as the given error, in one line."""
    content = read_bytes(path, error)
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is not JSON: {' '.join(str(problem).split())}") from None
    return found


def read_json_as(path: Path, kind: type[T], expected: str, hint: str = "") -> T:
    """Return the value in a JSON file, checked by pydantic.

    Args:
        path: the JSON file.
        kind: the type of the value.
        expected: a description of the content, for errors.
        hint: what to do if it is damaged.
    """
    from pydantic import TypeAdapter, ValidationError

    content = read_bytes(path)
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as problem:
        found = first_problem(problem)
        raise NdstackError(f"{path} is damaged: expected {expected}, but {found}{hint}") from None


def read_header(path: Path, model: type[M], what: str, hint: str = "") -> M:
    """Return the header of a folder, checked.

    Args:
        path: the JSON file.
        model: the pydantic class that describes its content.
        what: what the folder is, for errors, such as "a data set".
        hint: what to do if there is no such file.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as problem:
        hint = hint if not path.exists() else ""
        raise DatasetError(
            f"{path.parent} is not {what}: cannot read {path}: {problem.strerror}{hint}"
        ) from None
    except ValidationError as problem:
        raise DatasetError(f"{path} is not {what}'s header: {first_problem(problem)}") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the operating system releases it when the process ends in any way."""
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
