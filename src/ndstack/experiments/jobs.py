"""What is done for one trial, in any process: train or resume it, measure it, and write down how it ended.

A trial's folder is an ordinary run folder with two more files: `result.json` once it is complete, and what
was measured with the best model, `test.json` or `text.json`.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ndstack import files
from ndstack.errors import BusyError, NdstackError, first_problem, is_out_of_memory
from ndstack.experiments.experiment import Extend, Values
from ndstack.settings.base import Settings
from ndstack.training import Run, RunConfig, change_settings, evaluate, make_test_data, train
from ndstack.training.launch import use_threads
from ndstack.training.run import STATE, best_epoch, last_stage

RESULT, TEST, TEXT, FAILED = "result.json", "test.json", "text.json", "failed.json"
Measure = Literal["test", "text"]


class Job(Settings):
    """A trial as it is handed to an engine."""

    id: str
    folder: str
    config: RunConfig
    measure: tuple[Measure, ...] = ()
    suites: str | None = None
    """A folder of syntactic-generalization suites."""
    extend: Extend | None = None
    """Whether it gets more epochs if it still improves at its limit."""


class JobOutcome(Settings):
    """How a job ended."""

    id: str
    state: Literal["done", "failed", "machine", "interrupted"]
    """Failed: it would fail again, such as by a loss that is not a number. Machine: the machine failed."""
    message: str = ""


def do_job(job: Job) -> JobOutcome:
    """Do all that is left of a job. Errors do not pass: they become outcomes."""
    try:
        run_trial(job)
    except KeyboardInterrupt:
        return JobOutcome(id=job.id, state="interrupted")
    except Exception as error:
        state: Literal["failed", "machine"] = "machine" if is_machine_fault(error) else "failed"
        text = " ".join(str(error).split()) or "no message"
        if not isinstance(error, NdstackError):
            text = f"{type(error).__name__}: {text}"
        return JobOutcome(id=job.id, state=state, message=text)
    return JobOutcome(id=job.id, state="done")


def run_trial(job: Job) -> None:
    """Train a model, or resume its training, and measure it."""
    folder = Path(job.folder)
    if is_done(folder, job.measure) and more_epochs(Run.open(folder), job.config, job.extend) is None:
        return
    began = (folder / STATE).exists()
    if not began and folder.exists():
        with files.locked(folder):  # no other process is writing there
            _empty(folder)
    result = _train(folder, None if began else job.config)
    run = Run.open(folder)
    while (limit := more_epochs(run, job.config, job.extend)) is not None:
        (folder / RESULT).unlink(missing_ok=True)
        change_settings(folder, {"training": {"max_epochs": limit}})
        run.log(f"still improving: at most {limit} epochs now")
        result = _train(folder, None)
        run = Run.open(folder)
    with use_threads(run.config):
        start = time.monotonic()
        if "test" in job.measure:
            _measure_test(run)
        if "text" in job.measure:
            from ndstack.experiments.text_measures import measure_text

            run.replace(TEXT, json.dumps(measure_text(run, job.suites), indent=2) + "\n")
        seconds = time.monotonic() - start
    added = run.config.training.max_epochs - job.config.training.max_epochs
    spent = {
        "extended": added // job.extend.epochs if job.extend is not None else 0,
        "seconds": round(sum(run.seconds().values()), 3),
    }
    report = {**result, **spent, "seconds_measuring": round(seconds, 3)}
    run.replace(RESULT, json.dumps(report, indent=2) + "\n")


def is_done(folder: Path, measures: tuple[Measure, ...]) -> bool:
    """Whether a trial is complete, and everything measured."""
    return all((folder / name).exists() for name in (RESULT, *(f"{measure}.json" for measure in measures)))


def more_epochs(run: Run, config: RunConfig, rule: Extend | None) -> int | None:
    """The epoch limit that a run gets because it still improves at the one it has; None if it does not.

    Args:
        run: as it is now.
        config: as it was begun.
        rule: of the sweep.
    """
    history, training = run.metrics(), run.config.training
    if rule is None or not history or history[-1].get("stage", 1) <= len(training.stages):
        return None
    limit, most = training.max_epochs, config.training.max_epochs + rule.times * rule.epochs
    falling = history[-1]["epoch"] - best_epoch(history)["epoch"] < rule.within
    at_limit = len(last_stage(history)) >= limit
    return limit + rule.epochs if falling and at_limit and limit + rule.epochs <= most else None


def is_machine_fault(error: BaseException) -> bool:
    """Whether something other than the trial itself went wrong: a disk, a lock, memory."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError | BusyError) or is_out_of_memory(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def parse_job(text: str | bytes) -> Job:
    """A job as JSON."""
    try:
        return Job.model_validate_json(text)
    except ValidationError as error:
        raise NdstackError(f"not a job: {first_problem(error)}") from None


def _train(folder: Path, config: RunConfig | None) -> Values:
    known = config or Run.open(folder).config
    if known.corpus is not None:
        from ndstack.text import launch

        return launch.train_on_text(folder, config).summary()
    return train(folder, config).summary()


def _measure_test(run: Run) -> None:
    data = make_test_data(run.config)
    found = evaluate(run.load(), data, "test", eos=run.config.training.eos)
    run.replace(TEST, json.dumps(found.as_json(), indent=2) + "\n")


def _empty(folder: Path) -> None:
    """Remove what a run left that was ended before it saved anything."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != files.LOCK:
            entry.unlink()
