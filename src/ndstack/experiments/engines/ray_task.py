"""What runs on a machine of a Ray cluster: one trial, whose files are sent back as they change."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ndstack.experiments.engines.transfer import ChangedFiles, FileContents, write_files
from ndstack.experiments.jobs import JobOutcome, do_job, parse_job

LOOK = 0.2
"""Seconds between looks at whether the trial has ended."""


def run_remote_job(text: bytes, given: FileContents, every: float) -> Iterator[tuple[FileContents, bytes]]:
    """Run a job; yields the files that have changed now and then, and the outcome with the last ones.

    Args:
        text: the job as JSON.
        given: what there is of the trial already.
        every: seconds between files.
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
