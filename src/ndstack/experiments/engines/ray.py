"""The engine that runs trials with Ray, on a cluster or on this machine alone (the extra `ndstack[ray]`).

Every trial is a task. It sends its files back as bytes every few seconds and at its end, so no disk is
shared. If its machine fails, the trial is lost, and the sweep submits it again with the files that came back.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from ndstack.errors import NdstackError
from ndstack.experiments.engines.base import Lost
from ndstack.experiments.engines.ray_task import read_files, run_remote_job, write_files
from ndstack.experiments.jobs import Job, JobOutcome
from ndstack.processes import check_room

MESSAGES = 100
"""The largest number of messages that are received in one poll."""


OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Environment variables for Ray on this machine alone, to be set before Ray is imported: it then listens only
on the loopback address, as on Windows and macOS, and sends no usage reports."""


class Ray:
    """An engine whose trials are Ray tasks.

    Args:
        address: the address of a cluster to which this machine belongs, or "auto"; None for Ray on this
            machine alone.
        workers: the number of CPUs of Ray on this machine alone.
        cpus: the number of CPUs for each trial.
        gpus: the number of GPUs for each trial, which may be a fraction.
        every: the number of seconds between files from a trial.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int = 1,
        cpus: float = 1.0,
        gpus: float = 0.0,
        every: float = 10.0,
    ) -> None:
        if address is None:
            check_room(workers, "--workers")
            for name, value in OWN.items():
                os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise NdstackError("--engine ray needs the package ray: pip install 'ndstack[ray]'") from None
        self._ray: Any = ray
        self._address, self._workers, self._every = address, workers, every
        self._cpus, self._gpus = cpus, gpus
        self._task: Any = None
        self._jobs: dict[Iterator[object], Job] = {}

    def __enter__(self) -> Self:
        options: dict[str, object] = {"log_to_driver": False, "logging_level": "error"}
        self._check_address()
        if self._address is None:
            options |= {"address": "local", "num_cpus": self._workers, "include_dashboard": False}
        else:
            options |= {"address": self._address}
        try:
            self._ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = self._address or "this machine"
            raise NdstackError(f"no Ray at {where}: {' '.join(str(error).split())[:300]}") from None
        self._check_room()
        needs = {"num_cpus": self._cpus, "num_gpus": self._gpus}
        self._task = self._ray.remote(**needs, max_retries=0, num_returns="streaming")(run_remote_job)
        return self

    def _check_address(self) -> None:
        """Check that a machine answers at the address, because Ray itself would take minutes to fail."""
        if "://" in (self._address or ""):
            raise NdstackError(
                f"--address {self._address} given, expected auto or HOST:PORT, on a machine of the cluster"
            )
        host, colon, port = (self._address or "").rpartition(":")
        if not colon or "/" in host or not port.isdecimal():
            return
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise NdstackError(
                f"no Ray at {self._address}: {error.strerror or error}; start it with ray start --head"
            ) from None

    def _check_room(self) -> None:
        """Check that the cluster has room for a trial, because it would otherwise wait forever."""
        have = self._ray.cluster_resources()
        for kind, wanted in (("CPU", self._cpus), ("GPU", self._gpus)):
            there = have.get(kind, 0.0)
            if wanted > there:
                self._ray.shutdown()
                raise NdstackError(f"a trial takes {wanted:g} {kind}s, but the cluster has {there:g}")

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._ray.shutdown()

    def slots(self) -> int:
        """Return how many jobs the processors of the cluster have room for now."""
        have = self._ray.cluster_resources()
        room = have.get("CPU", 0.0) / self._cpus if self._cpus else float("inf")
        if self._gpus:
            room = min(room, have.get("GPU", 0.0) / self._gpus)
        return max(1, int(room)) if room != float("inf") else self._workers

    def submit(self, job: Job) -> None:
        """Submit a job to Ray, with the files that its folder already has."""
        contents = read_files(Path(job.folder))
        self._jobs[self._task.remote(job.model_dump_json().encode(), contents, self._every)] = job

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """Receive files; the outcome of a trial comes with its last files."""
        ended: list[JobOutcome | Lost] = []
        if not self._jobs:
            time.sleep(timeout)
        for _ in range(MESSAGES):
            if not self._jobs:
                break
            ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=timeout)
            if not ready:
                break
            timeout = 0.0
            event = self._receive(ready[0])
            if event is not None:
                del self._jobs[ready[0]]
                ended.append(event)
        return ended

    def stop(self) -> None:
        """Cancel all trials; the files that have come back are kept."""
        for stream in self._jobs:
            self._ray.cancel(stream, force=True)
        self._jobs = {}

    def _receive(self, stream: Iterator[object]) -> JobOutcome | Lost | None:
        job = self._jobs[stream]
        try:
            contents, outcome = self._ray.get(next(stream))
        except StopIteration:
            return Lost(job.id, "its task ended without an outcome")
        except self._ray.exceptions.RayError as error:
            return Lost(job.id, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        write_files(Path(job.folder), contents)
        return JobOutcome.model_validate_json(outcome) if outcome else None
