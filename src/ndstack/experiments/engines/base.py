"""What a sweep asks of an engine."""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import Protocol, Self

from ndstack.experiments.jobs import Job, JobOutcome


@dataclasses.dataclass(frozen=True)
class Lost:
    """A trial whose process or machine is gone."""

    id: str
    message: str


class Engine(Protocol):
    """Runs jobs; what it writes is in the job's folder, on the machine of the sweep, when it ends."""

    def slots(self) -> int:
        """How many jobs may be handed over at once; it may change."""

    def submit(self, job: Job) -> None:
        """Take a job."""

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """What ended; waits for something, but no longer than the timeout in seconds."""

    def stop(self) -> None:
        """Let running trials save what they have, and end."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
