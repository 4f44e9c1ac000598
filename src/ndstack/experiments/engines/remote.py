"""What runs on a machine of a Ray cluster: a trial in a folder of its own, sent back piece by piece."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ndstack.experiments.engines.parcels import Parcel, Sender, unpack
from ndstack.experiments.work import Outcome, parse_job, work

LOOK = 0.2
"""Seconds between looks at whether the trial has ended."""


def work_remotely(text: bytes, given: Parcel, every: float) -> Iterator[tuple[Parcel, bytes]]:
    """Do a job; yields what changed in its folder now and then, at the end with the outcome.

    Args:
        text: the job as JSON.
        given: what there is of the trial already.
        every: seconds between parcels.
    """
    with tempfile.TemporaryDirectory(prefix="ndstack-") as place:
        folder = Path(place) / "trial"
        unpack(folder, given)
        sender = Sender(folder, given)
        job = parse_job(text).model_copy(update={"folder": str(folder)})
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(work(job)), daemon=True)
        thread.start()
        yield {}, b""
        sent = time.monotonic()
        while thread.is_alive():
            thread.join(LOOK)
            if time.monotonic() - sent > every and folder.exists():
                parcel = sender.pack()
                if parcel:
                    yield parcel, b""
                sent = time.monotonic()
        yield sender.pack(), outcomes[0].model_dump_json().encode()
