"""The engine of processes of this machine, with one thread each, which communicate in lines of JSON.

A process works on one job after another. When the sweep ends for any reason, its processes end as well
(`ndstack.processes`), even those that have not yet started to read from their pipe.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Self

from ndstack import processes
from ndstack.errors import NdstackError
from ndstack.experiments.engines.base import Lost
from ndstack.experiments.jobs import Job, JobOutcome

LOWEST = 19
"""The lowest priority."""
PATIENCE = 20.0
"""The number of seconds for saving trials when a sweep is stopped."""


def _lower_priority(pid: int, priority: int) -> None:
    """Set the priority of a process that leads its own session.

    Linux distributes processor time first among sessions (sched_autogroup), by their priority, and then among
    the processes of each session, so both priorities are set.
    """
    os.setpriority(os.PRIO_PROCESS, pid, priority)
    with contextlib.suppress(OSError):  # another system, or a kernel without priorities of sessions
        Path(f"/proc/{pid}/autogroup").write_text(str(priority))


class _Worker:
    """A process and its current job."""

    def __init__(self, log: Path, replies: queue.Queue[tuple[_Worker, bytes]], nice: int) -> None:
        self.job: Job | None = None
        with log.open("ab") as errors, processes.tied_children():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ndstack.experiments.engines.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                start_new_session=True,
            )
        if nice:
            _lower_priority(self.process.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + nice, LOWEST))
        self._listener = threading.Thread(target=self._listen, args=(replies,), daemon=True)
        self._listener.start()

    def _listen(self, replies: queue.Queue[tuple[_Worker, bytes]]) -> None:
        with _pipe(self.process.stdout) as lines:
            for line in lines:
                replies.put((self, line))
        replies.put((self, b""))

    def send(self, job: Job) -> None:
        self.job = job
        pipe = _pipe(self.process.stdin)
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which its listener reports
            pipe.write(job.model_dump_json().encode() + b"\n")
            pipe.flush()

    def end(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        code = self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        self._listener.join()
        return code


class Local:
    """An engine of several processes of this machine, which are started when there are jobs.

    Args:
        workers: the number of processes.
        log: the file for their error output.
        nice: the amount by which their priority is lower than that of this process, as in the command nice.
    """

    def __init__(self, workers: int, log: Path, nice: int = 0) -> None:
        if workers < 1:
            raise NdstackError(f"{workers} workers given, expected 1 or more")
        if nice and not hasattr(os, "setpriority"):
            raise NdstackError(f"--nice {nice} given, but this system has no priorities; omit it")
        processes.check_room(workers, "--workers")
        self._count, self._log, self._nice = workers, log, nice
        self._workers: list[_Worker] = []
        self._replies: queue.Queue[tuple[_Worker, bytes]] = queue.Queue()

    def slots(self) -> int:
        """Return the number of processes."""
        return self._count

    def submit(self, job: Job) -> None:
        """Give a job to a process without one, or to a new process."""
        worker = next((one for one in self._workers if one.job is None), None)
        if worker is None:
            worker = _Worker(self._log, self._replies, self._nice)
            self._workers.append(worker)
        worker.send(job)

    def poll(self, timeout: float) -> list[JobOutcome | Lost]:
        """Return outcomes, and jobs whose processes ended without one."""
        ended: list[JobOutcome | Lost] = []
        while True:
            try:
                worker, line = self._replies.get(timeout=timeout)
            except queue.Empty:
                return ended
            timeout = 0.001
            if line:
                ended.append(JobOutcome.model_validate_json(line))
                worker.job = None
            elif worker in self._workers:
                self._workers.remove(worker)
                code = worker.end()
                if worker.job is not None:
                    message = f"its process ended with {_name(code)}; see {self._log}"
                    ended.append(Lost(worker.job.id, message))

    def stop(self) -> None:
        """Ask all processes to save and end, and kill those that do not end in time."""
        for worker in self._workers:
            if worker.job is not None:
                worker.process.send_signal(signal.SIGINT)
        until = time.monotonic() + PATIENCE
        while any(worker.job is not None for worker in self._workers) and time.monotonic() < until:
            self.poll(0.2)
        for worker in self._workers:
            worker.process.kill()
            worker.end()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _name(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
