"""The interface between a sweep and the engine that runs its trials."""

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
        """How many jobs may run at once; the number may change."""

    def submit(self, job: Job) -> None:
        """Accept a job, and start it when there is room."""

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """The jobs that have ended; waits for one, at most for the timeout in seconds."""

    def stop(self) -> None:
        """Let running trials save what they have, and end."""

    def __enter__(self) -> Self:
        """Start the engine."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the engine."""
