"""One trial after another in this process: for tests, and to see where an error comes from."""

from __future__ import annotations

from typing import Self

from ndstack.experiments.engines.base import Lost
from ndstack.experiments.jobs import Job, JobOutcome, do_job


class Inline:
    """An engine without processes of its own: one trial after another, in this one."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []

    def slots(self) -> int:
        """One at a time."""
        return 1

    def submit(self, job: Job) -> None:
        """Keep the job until the next poll, which runs it."""
        self._waiting.append(job)

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """Run the oldest job."""
        outcome = do_job(self._waiting.pop(0))
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        return [outcome]

    def stop(self) -> None:
        """Do nothing, since no job runs between two polls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
