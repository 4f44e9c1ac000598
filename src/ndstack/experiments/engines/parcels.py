"""A trial's folder as bytes, to and from a machine that shares no disk with the sweep."""

from __future__ import annotations

import re
from pathlib import Path

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.work import RESULT
from ndstack.training.run import BEST, STATE

Parcel = dict[str, bytes]
"""File names, relative to the trial's folder, and their contents."""

_NAME = re.compile(r"(?:(?:last|snapshots)/)?[A-Za-z0-9][\w.-]*")


class Sender:
    """Packs what is new in a folder; each file once for each of its versions."""

    def __init__(self, folder: Path, known: Parcel) -> None:
        self.folder = folder
        self._sent = {name: self._version(name) for name in known}

    def pack(self) -> Parcel:
        """What changed since the last time. The state is read first: what is newer than it does no harm."""
        names = [
            path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()
        ]
        names = sorted((name for name in names if _NAME.fullmatch(name)), key=lambda name: name != STATE)
        parcel: Parcel = {}
        for name in names:
            try:
                version = self._version(name)
                if self._sent.get(name) != version:
                    parcel[name] = (self.folder / name).read_bytes()
                    self._sent[name] = version
            except FileNotFoundError:  # removed in this moment
                continue
        return parcel

    def _version(self, name: str) -> tuple[int, int, int]:
        status = (self.folder / name).stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def pack(folder: Path) -> Parcel:
    """Everything in a folder."""
    return Sender(folder, {}).pack() if folder.exists() else {}


def unpack(folder: Path, parcel: Parcel) -> None:
    """Write files so that one can go on from them at any moment.

    The state comes after the best model, the result after everything.
    """
    order = [BEST, *(name for name in parcel if name not in (BEST, STATE, RESULT)), STATE, RESULT]
    for name in order:
        if name not in parcel:
            continue
        if not _NAME.fullmatch(name):
            raise NdstackError(f"a file called {name!r} came back from a trial, expected one of a run folder")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, parcel[name])
