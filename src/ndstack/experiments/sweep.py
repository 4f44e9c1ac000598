"""The driver of a sweep, which submits trials to an engine until each of them is complete or has failed.

A trial is complete if its folder, or a table of runs made elsewhere, has its result; it is never run again.
Only one driver at a time may use the folder of a sweep. A trial that was interrupted is resumed. A trial that
failed because of the machine (its process was killed, or the disk is full) is tried again a few times, and
again when the sweep is repeated. A trial that failed because of its settings is reported, and tried again
only on request.
"""

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
from ndstack.experiments.claims.open_claims import OpenClaims
from ndstack.experiments.engines import Engine, Lost
from ndstack.experiments.estimate import expect, expect_group, measure_paces
from ndstack.experiments.experiment import Experiment, Rules
from ndstack.experiments.groups import Group, group_of, members, not_needed, spent
from ndstack.experiments.jobs import Job, JobOutcome, Measure
from ndstack.experiments.sweep_folder import COMPLETE, Status, SweepFolder
from ndstack.experiments.trials import Trial

ATTEMPTS = 3
PAUSE = 1.0
"""A trial that failed because of the machine is tried again after this many seconds times the number of
attempts so far."""
TICK = 1.0
TESTED = ("curves", "accuracy", "generalization")
"""The kinds of outputs that need results on the test set."""


@dataclasses.dataclass
class Summary:
    """The result of a sweep."""

    done: list[Trial] = dataclasses.field(default_factory=list)
    """The trials that are complete here."""
    known: list[Trial] = dataclasses.field(default_factory=list)
    """The trials that are complete in the tables of runs made elsewhere."""
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    """The trials that failed because of their settings, with messages."""
    given_up: dict[str, str] = dataclasses.field(default_factory=dict)
    """The trials that failed too often because of the machine, with messages."""
    not_needed: dict[str, str] = dataclasses.field(default_factory=dict)
    """The trials that were not run because their group has ended or no claim needs them, with reasons."""


@dataclasses.dataclass(frozen=True)
class Portion:
    """The trials of one experiment, and how they are run."""

    trials: Sequence[Trial]
    measures: tuple[Measure, ...] = ()
    """What is measured with each trained model."""
    rules: Rules = Rules()  # noqa: RUF009 (frozen)
    suites: str | None = None
    """A folder of syntactic-generalization suites."""


class Watcher:
    """A watcher of a sweep that ignores everything; subclasses override the methods that they need."""

    def begin(self, trials: Sequence[Trial], done: int, known: int) -> None:
        """Handle the start of a sweep, given the numbers of trials complete here and known from tables."""

    def started(self, trial: Trial, attempt: int) -> None:
        """Handle a trial that is submitted to the engine."""

    def ended(self, trial: Trial, state: str, message: str) -> None:
        """Handle a trial that is done, has failed, or will be tried again."""

    def tick(self, running: Sequence[Trial], left: float | None) -> None:
        """Handle the passage of time; the sweep may take `left` more seconds."""

    def close(self) -> None:
        """Handle the end of the sweep."""


def run_sweep(
    folder: SweepFolder,
    trials: Sequence[Trial],
    engine: Engine,
    *,
    measures: tuple[Measure, ...] = (),
    suites: str | None = None,
    rules: Rules | None = None,
    retry_failed: bool = False,
    watcher: Watcher | None = None,
) -> Summary:
    """Run the trials of an experiment that are neither complete nor failed nor unnecessary by its rules.

    Args:
        folder: the folder of the sweep.
        trials: all trials of the experiment.
        engine: the engine that runs them.
        measures: what is measured with each trained model.
        suites: a folder of syntactic-generalization suites.
        rules: when groups end, which runs are extended and for which claims they are made; usually the
            experiment itself.
        retry_failed: whether trials that failed because of their settings are tried again.
        watcher: an object that is notified of progress.
    """
    portion = Portion(trials, measures, rules or Rules(), suites)
    return run_campaign(folder, [portion], engine, retry_failed=retry_failed, watcher=watcher)


def run_campaign(
    folder: SweepFolder,
    portions: Sequence[Portion],
    engine: Engine,
    *,
    retry_failed: bool = False,
    watcher: Watcher | None = None,
) -> Summary:
    """Run the trials of several experiments, in the order of the experiments.

    Args:
        folder: the folder of the sweep.
        portions: the experiments in order; a trial of several experiments is run once.
        engine: the engine that runs trials.
        retry_failed: whether trials that failed because of their settings are tried again.
        watcher: an object that is notified of progress.
    """
    folder.folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder.folder), _terminable(), engine:
        files.tidy(folder.folder, *(folder.folder / part for part in ("experiments", "report")))
        driver = _Driver(folder, portions, engine, watcher or Watcher())
        try:
            return driver.run(retry_failed)
        finally:
            driver.watcher.close()


def measures_of(experiment: Experiment) -> tuple[Measure, ...]:
    """Return what has to be measured for the outputs of an experiment."""
    if experiment.text:
        return ("text",)
    return ("test",) if any(output.kind in TESTED for output in experiment.outputs) else ()


@dataclasses.dataclass(frozen=True)
class _Item:
    """A trial of a portion."""

    trial: Trial
    portion: Portion
    group: list[Trial]
    """All trials of the portion with the same label and language."""


class _Driver:
    def __init__(
        self, folder: SweepFolder, portions: Sequence[Portion], engine: Engine, watcher: Watcher
    ) -> None:
        self.folder, self.engine, self.watcher = folder, engine, watcher
        self.items: list[_Item] = []
        for portion in portions:
            groups = members(portion.trials)
            self.items += (_Item(trial, portion, groups[group_of(trial)]) for trial in portion.trials)
        self.claims = OpenClaims(folder, [name for portion in portions for name in portion.rules.claims])
        self.summary = Summary()
        self.running: dict[str, _Item] = {}
        self.attempts: dict[str, int] = {}
        self.waiting: deque[_Item] = deque()
        self.pausing: list[tuple[float, _Item]] = []
        self.estimated = -1e9
        self.left: float | None = None

    def run(self, retry_failed: bool) -> Summary:
        begun: list[_Item] = []
        for item in self.items:
            if retry_failed and self._status(item) == "failed":
                self.folder.forgive(item.trial)
            status = self._status(item)
            if not self._settled(item, status):
                (begun if status == "begun" else self.waiting).append(item)
        self.waiting.extendleft(reversed(begun))
        self.watcher.begin(
            [item.trial for item in self.items], len(self.summary.done), len(self.summary.known)
        )
        while self.waiting or self.running or self.pausing:
            self._fill()
            for event in self.engine.poll(TICK) if self.running else []:
                self._end(event)
            self._tick()
        return self.summary

    def _status(self, item: _Item) -> Status:
        return self.folder.status(item.trial, item.portion.measures, item.portion.rules.extend)

    def _settled(self, item: _Item, status: Status) -> bool:
        """Return whether nothing is left to do for a trial, and record how it ended."""
        if status == "done":
            self.summary.done.append(item.trial)
        elif status == "known":
            self.summary.known.append(item.trial)
        elif status == "failed":
            self.summary.failed[item.trial.id] = self.folder.failure(item.trial)
        return status in (*COMPLETE, "failed")

    def _fill(self) -> None:
        """Submit trials while there is room."""
        now = time.monotonic()
        self.waiting.extend(item for due, item in self.pausing if due <= now)
        self.pausing = [(due, item) for due, item in self.pausing if due > now]
        if not self.running and not self.waiting and self.pausing:
            time.sleep(max(0.0, min(due for due, _ in self.pausing) - now))
        while len(self.running) < self.engine.slots() and (item := self._next()) is not None:
            trial, portion = item.trial, item.portion
            self.folder.reopen(trial)
            self.running[trial.id] = item
            self.attempts[trial.id] = self.attempts.get(trial.id, 0) + 1
            self.engine.submit(
                Job(
                    id=trial.id,
                    folder=str(self.folder.trial(trial).absolute()),
                    config=trial.config,
                    measure=portion.measures,
                    suites=portion.suites,
                    extend=portion.rules.extend,
                )
            )
            self.watcher.started(trial, self.attempts[trial.id])

    def _next(self) -> _Item | None:
        """Return the first waiting trial that can be run; those that are not needed are removed."""
        later: list[_Item] = []
        found = None
        while self.waiting and found is None:
            item = self.waiting.popleft()
            if item.trial.id in self.running:  # it belongs to another experiment, too
                later.append(item)
            elif item.trial.id in self.summary.given_up or self._left_out(item):
                continue
            else:
                found = item
        self.waiting.extendleft(reversed(later))
        return found

    def _left_out(self, item: _Item) -> bool:
        """Return whether a waiting trial is complete, or not needed by the rules or for the claims."""
        status, portion = self._status(item), item.portion
        if self._settled(item, status):
            self.watcher.ended(item.trial, status, "")
            return True
        if status == "begun":
            return False
        ended = not_needed(self.folder, item.group, portion.rules, portion.measures)
        reason = ended.get(item.trial.id) or self.claims.reason(item.trial, portion.rules)
        if reason is not None:
            self.summary.not_needed[item.trial.id] = reason
            self.watcher.ended(item.trial, "not needed", reason)
        return reason is not None

    def _end(self, event: JobOutcome | Lost) -> None:
        item = self.running.pop(event.id)
        trial = item.trial
        if isinstance(event, Lost) or event.state in ("machine", "interrupted"):
            message = event.message or "interrupted"
            if self.attempts[trial.id] >= ATTEMPTS:
                self.summary.given_up[trial.id] = message
                self.watcher.ended(trial, "given up", message)
                return
            self.pausing.append((time.monotonic() + PAUSE * self.attempts[trial.id], item))
            self.watcher.ended(trial, "again", message)
        elif event.state == "failed":
            self.folder.fail(trial, event.message)
            self.summary.failed[trial.id] = event.message
            self.watcher.ended(trial, "failed", event.message)
        else:
            self.summary.done.append(trial)
            self.claims.forget()
            self.watcher.ended(trial, "done", "")

    def _tick(self) -> None:
        """Notify the watcher; the estimate is updated rarely, because it reads all trials."""
        now = time.monotonic()
        if now - self.estimated > (TICK if self.left is None else 30 * TICK):
            self.left = self._estimate()
            self.estimated = time.monotonic()
        self.watcher.tick([item.trial for item in self.running.values()], self.left)

    def _estimate(self) -> float | None:
        """Return the expected seconds until the end; trials are weighted by how probably they are needed."""
        running = list(self.running.values())
        complete = [*self.summary.done[-50:], *self.summary.known[-50:]]
        paces = measure_paces(self.folder, [*complete, *(item.trial for item in running)])
        total, groups = 0.0, dict[tuple[int, Group], list[tuple[int, float]]]()
        owners: dict[tuple[int, Group], _Item] = {}
        waiting = [one for one in self.waiting if self.claims.reason(one.trial, one.portion.rules) is None]
        items = [*running, *waiting, *(one for _, one in self.pausing)]
        for item in {one.trial.id: one for one in reversed(items)}.values():  # a shared trial counts once
            expected = expect(paces, item.trial)
            if expected is None:
                return None
            run = self.folder.run(item.trial)
            if run is None and item.trial.id not in self.running:
                key = id(item.portion), group_of(item.trial)
                owners[key] = item
                groups.setdefault(key, []).append(expected)
            else:
                total += max(0.0, expected[1] - (sum(run.seconds().values()) if run is not None else 0.0))
        for key, trials in groups.items():
            portion = owners[key].portion
            so_far = spent(self.folder, owners[key].group, portion.measures, portion.rules.extend)
            total += expect_group(portion.rules, so_far, trials)
        return total / max(1, self.engine.slots())


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that trials are saved when a batch system ends the sweep."""
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
