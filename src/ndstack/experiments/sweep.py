"""The driver: hands trials to an engine until all are complete or cannot be.

A complete trial is never run again: what is complete is decided by its folder alone, and one driver at a
time has the folder. A trial that was interrupted goes on where it was. One that failed for outside reasons
(its process killed, a disk full) is tried again a few times, and again when the sweep is continued; one that
failed for reasons of its own is reported, and tried again only on request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from ndstack import files
from ndstack.experiments.engines import Engine, Lost
from ndstack.experiments.estimate import expect, measure
from ndstack.experiments.folder import SweepFolder
from ndstack.experiments.spec import Experiment
from ndstack.experiments.trials import Trial
from ndstack.experiments.work import Job, Measure, Outcome

ATTEMPTS = 3
PAUSE = 1.0
"""Seconds before a trial that failed for outside reasons is tried again; more each time."""
TICK = 1.0


@dataclasses.dataclass
class Summary:
    """How a sweep ended."""

    done: list[Trial] = dataclasses.field(default_factory=list)
    """Complete, now or before."""
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    """Failed for reasons of their own: trial to message."""
    given_up: dict[str, str] = dataclasses.field(default_factory=dict)
    """Failed for outside reasons too often."""


class Watcher:
    """Ignores everything; a display overrides what it needs."""

    def begin(self, trials: Sequence[Trial], done: int) -> None:
        """A sweep begins; so many trials are complete already."""

    def started(self, trial: Trial, attempt: int) -> None:
        """A trial is handed to the engine."""

    def ended(self, trial: Trial, state: str, message: str) -> None:
        """A trial is done, failed, or will be tried again."""

    def tick(self, running: Sequence[Trial], left: float | None) -> None:
        """Time passes; the sweep may take `left` seconds more."""

    def close(self) -> None:
        """The sweep is over."""


def run_sweep(
    folder: SweepFolder,
    trials: Sequence[Trial],
    engine: Engine,
    *,
    measures: tuple[Measure, ...] = (),
    suites: str | None = None,
    retry_failed: bool = False,
    watcher: Watcher | None = None,
) -> Summary:
    """Run all trials that are not complete.

    Args:
        folder: of the sweep.
        trials: all of them.
        engine: where they run.
        measures: what is measured with each trained model.
        suites: a folder of syntactic-generalization suites.
        retry_failed: whether trials that failed for reasons of their own are tried again.
        watcher: is told what happens.
    """
    folder.folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder.folder), _terminable(), engine:
        files.tidy(folder.folder, *(folder.folder / part for part in ("experiments", "report")))
        driver = _Driver(folder, trials, engine, measures, suites, watcher or Watcher())
        try:
            return driver.run(retry_failed)
        finally:
            driver.watcher.close()


def measures_of(experiment: Experiment) -> tuple[Measure, ...]:
    """What has to be measured for the outputs of an experiment."""
    kinds = {output.kind for output in experiment.outputs}
    if experiment.text:
        return ("text",)
    return ("test",) if "curves" in kinds else ()


class _Driver:
    def __init__(
        self,
        folder: SweepFolder,
        trials: Sequence[Trial],
        engine: Engine,
        measures: tuple[Measure, ...],
        suites: str | None,
        watcher: Watcher,
    ) -> None:
        self.folder, self.trials, self.engine, self.watcher = folder, trials, engine, watcher
        self.measures, self.suites = measures, suites
        self.summary = Summary()
        self.running: dict[str, Trial] = {}
        self.attempts: dict[str, int] = {}
        self.waiting: deque[Trial] = deque()
        self.pausing: list[tuple[float, Trial]] = []
        self.estimated = -1e9
        self.left: float | None = None

    def run(self, retry_failed: bool) -> Summary:
        for trial in self.trials:
            status = self.folder.status(trial, self.measures)
            if status == "failed" and retry_failed:
                self.folder.forgive(trial)
                status = self.folder.status(trial, self.measures)
            if status == "done":
                self.summary.done.append(trial)
            elif status == "failed":
                self.summary.failed[trial.id] = self.folder.failure(trial)
            elif status == "begun":
                self.waiting.appendleft(trial)
            else:
                self.waiting.append(trial)
        self.watcher.begin(self.trials, len(self.summary.done))
        while self.waiting or self.running or self.pausing:
            self._fill()
            for event in self.engine.poll(TICK) if self.running else []:
                self._end(event)
            self._tick()
        return self.summary

    def _fill(self) -> None:
        """Hand over trials while there is room."""
        now = time.monotonic()
        self.waiting.extend(trial for due, trial in self.pausing if due <= now)
        self.pausing = [(due, trial) for due, trial in self.pausing if due > now]
        if not self.running and not self.waiting and self.pausing:
            time.sleep(max(0.0, min(due for due, _ in self.pausing) - now))
        while self.waiting and len(self.running) < self.engine.slots():
            trial = self.waiting.popleft()
            self.running[trial.id] = trial
            self.attempts[trial.id] = self.attempts.get(trial.id, 0) + 1
            path = str(self.folder.trial(trial).absolute())
            config, measures = trial.config, self.measures
            self.engine.submit(
                Job(id=trial.id, folder=path, config=config, measure=measures, suites=self.suites)
            )
            self.watcher.started(trial, self.attempts[trial.id])

    def _end(self, event: Outcome | Lost) -> None:
        trial = self.running.pop(event.id)
        if isinstance(event, Lost) or event.state in ("outside", "interrupted"):
            message = event.message or "interrupted"
            if self.attempts[trial.id] >= ATTEMPTS:
                self.summary.given_up[trial.id] = message
                self.watcher.ended(trial, "given up", message)
                return
            self.pausing.append((time.monotonic() + PAUSE * self.attempts[trial.id], trial))
            self.watcher.ended(trial, "again", message)
        elif event.state == "inside":
            self.folder.fail(trial, event.message)
            self.summary.failed[trial.id] = event.message
            self.watcher.ended(trial, "failed", event.message)
        else:
            self.summary.done.append(trial)
            self.watcher.ended(trial, "done", "")

    def _tick(self) -> None:
        """Tell the watcher; the estimate is made now and then, since it reads all trials."""
        now = time.monotonic()
        if now - self.estimated > (TICK if self.left is None else 10 * TICK):
            self.left = self._estimate()
            self.estimated = time.monotonic()
        self.watcher.tick(list(self.running.values()), self.left)

    def _estimate(self) -> float | None:
        paces = measure(self.folder, [*self.summary.done[-50:], *self.running.values()])
        total = 0.0
        for trial in [*self.waiting, *self.running.values(), *(one for _, one in self.pausing)]:
            seconds = expect(paces, trial)
            if seconds is None:
                return None
            run = self.folder.run(trial)
            total += max(0.0, seconds - (sum(run.seconds().values()) if run is not None else 0.0))
        return total / max(1, self.engine.slots())


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is taken like Ctrl-C, so that trials are saved when a batch system ends the sweep."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
