"""What runs on a machine of a Ray cluster: one trial, whose files are sent back as bytes when they change."""

import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.jobs import RESULT, JobOutcome, do_job, parse_job
from ndstack.training.run import BEST, STATE

FileContents = dict[str, bytes]
"""The contents of files by their names, relative to the folder of the trial."""

_NAME = re.compile(r"(?:(?:last|snapshots)/)?[A-Za-z0-9][\w.-]*")


class ChangedFiles:
    """The files of a folder that have changed since they were last read."""

    def __init__(self, folder: Path, known: FileContents) -> None:
        self.folder = folder
        self._sent = {name: self._version(name) for name in known}

    def read(self) -> FileContents:
        """Return the files that have changed. The state is read first, because newer files do no harm."""
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
            except FileNotFoundError:  # it has just been removed
                continue
        return contents

    def _version(self, name: str) -> tuple[int, int, int]:
        status = (self.folder / name).stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def read_files(folder: Path) -> FileContents:
    """Return all files of the folder of a trial."""
    return ChangedFiles(folder, {}).read() if folder.exists() else {}


def write_files(folder: Path, contents: FileContents) -> None:
    """Write files in an order that allows the trial to be resumed at any moment.

    The state is written after the best model, and the result after everything else.
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


LOOK = 0.2
"""The number of seconds between checks whether the trial has ended."""


def run_remote_job(text: bytes, given: FileContents, every: float) -> Iterator[tuple[FileContents, bytes]]:
    """Run a job; yield files that have changed from time to time, and the outcome with the last ones.

    Args:
        text: the job as JSON.
        given: the files that the trial already has.
        every: the number of seconds between files.
    """
    with tempfile.TemporaryDirectory(prefix="ndstack-") as place:
        folder = Path(place) / "trial"
        write_files(folder, given)
        sender = ChangedFiles(folder, given)
        job = parse_job(text).model_copy(update={"folder": str(folder)})
        outcomes: list[JobOutcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(do_job(job)), daemon=True)
        thread.start()
        yield {}, b""
        sent = time.monotonic()
        while thread.is_alive():
            thread.join(LOOK)
            if time.monotonic() - sent > every and folder.exists():
                contents = sender.read()
                if contents:
                    yield contents, b""
                sent = time.monotonic()
        yield sender.read(), outcomes[0].model_dump_json().encode()
