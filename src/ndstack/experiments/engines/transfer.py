"""The files of a trial as bytes, which travel between machines that share no disk."""

from __future__ import annotations

import re
from pathlib import Path

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.jobs import RESULT
from ndstack.training.run import BEST, STATE

FileContents = dict[str, bytes]
"""File names, relative to the trial's folder, and their contents."""

_NAME = re.compile(r"(?:(?:last|snapshots)/)?[A-Za-z0-9][\w.-]*")


class ChangedFiles:
    """Reads the files of a folder that have changed since they were last read."""

    def __init__(self, folder: Path, known: FileContents) -> None:
        self.folder = folder
        self._sent = {name: self._version(name) for name in known}

    def read(self) -> FileContents:
        """The files that have changed. The state is read first: files newer than it do no harm."""
        names = [
            path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()
        ]
        names = sorted((name for name in names if _NAME.fullmatch(name)), key=lambda name: name != STATE)
        contents: FileContents = {}
        for name in names:
            try:
                version = self._version(name)
                if self._sent.get(name) != version:
                    contents[name] = (self.folder / name).read_bytes()
                    self._sent[name] = version
            except FileNotFoundError:  # removed in this moment
                continue
        return contents

    def _version(self, name: str) -> tuple[int, int, int]:
        status = (self.folder / name).stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def read_files(folder: Path) -> FileContents:
    """All files of a trial's folder."""
    return ChangedFiles(folder, {}).read() if folder.exists() else {}


def write_files(folder: Path, contents: FileContents) -> None:
    """Write files in such an order that the trial can be resumed from them at any moment.

    The state comes after the best model, the result after everything.
    """
    order = [BEST, *(name for name in contents if name not in (BEST, STATE, RESULT)), STATE, RESULT]
    for name in order:
        if name not in contents:
            continue
        if not _NAME.fullmatch(name):
            raise NdstackError(f"a file called {name!r} came back from a trial, expected one of a run folder")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, contents[name])
