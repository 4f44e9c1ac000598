"""The interface between a sweep and the engine that runs its trials, and the simplest engine."""

import dataclasses
from types import TracebackType
from typing import Protocol, Self

from ndstack.experiments.jobs import Job, JobOutcome, do_job


@dataclasses.dataclass(frozen=True)
class Lost:
    """A trial whose process or machine has ended without an outcome."""

    id: str
    message: str


class Engine(Protocol):
    """An engine that runs jobs; when a job ends, its files are in its folder on the machine of the sweep."""

    def slots(self) -> int:
        """Return how many jobs may run at the same time; the number may change."""

    def submit(self, job: Job) -> None:
        """Accept a job, and start it when there is room for it."""

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """Wait for a job to end, at most for the timeout in seconds, and return all that have ended."""

    def stop(self) -> None:
        """Let running trials save their state, and end them."""

    def __enter__(self) -> Self:
        """Start the engine."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the engine."""


class Inline:
    """An engine that runs one trial after another in this process, for tests and for finding errors."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []

    def slots(self) -> int:
        """Return 1."""
        return 1

    def submit(self, job: Job) -> None:
        """Keep the job for the next poll, which runs it."""
        self._waiting.append(job)

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """Run the oldest job."""
        outcome = do_job(self._waiting.pop(0))
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        return [outcome]

    def stop(self) -> None:
        """Do nothing, because no job runs between two polls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
