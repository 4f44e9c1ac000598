"""The work on one trial in any process: train or resume it, measure it, and write the result.

The folder of a trial is a run folder with two more files: `result.json` if the trial is complete, and the
measurements of its best model, `test.json` or `text.json`.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from ndstack import files, text
from ndstack.errors import BusyError, NdstackError, first_problem, is_out_of_memory
from ndstack.experiments.experiment import Extend
from ndstack.settings.base import Settings
from ndstack.text import launch
from ndstack.text.generalization import SHORT
from ndstack.text.suites import find_suites
from ndstack.training import Result, Run, RunConfig, change_settings, measure, train
from ndstack.training.launch import use_threads
from ndstack.training.run import STATE, best_epoch, last_stage

RESULT, TEST, TEXT, FAILED = "result.json", "test.json", "text.json", "failed.json"
Measure = Literal["test", "text"]


class Job(Settings):
    """A trial in the form in which an engine receives it."""

    id: str
    folder: str
    config: RunConfig
    measure: tuple[Measure, ...] = ()
    suites: str | None = None
    """A folder of syntactic-generalization suites."""
    extend: Extend | None = None
    """The rule by which the trial gets more epochs if it still improves at its limit."""


class JobOutcome(Settings):
    """The outcome of a job."""

    id: str
    state: Literal["done", "failed", "machine", "interrupted"]
    """A job has failed if it would fail again, for example because its loss is not a number. "machine" means
    that the machine has failed."""
    message: str = ""


class JobResult(BaseModel):
    """The part of `result.json` that is read again."""

    updates: int | None = None


class TextMeasures(BaseModel):
    """The content of `text.json`."""

    test_perplexity: float | None = None
    sg_score: float | None = None
    """The SG score with the dissertation's averaging."""
    circuits: dict[str, float] = {}
    """The score of each circuit, by its abbreviation in table 7.2."""


def do_job(job: Job) -> JobOutcome:
    """Do all that is left of a job, and return its outcome; errors are outcomes, too."""
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
    """Train a model, or resume its training, then measure it and write the result."""
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
            run.replace(TEST, json.dumps(measure(run).as_json(), indent=2) + "\n")
        if "text" in job.measure:
            run.replace(TEXT, measure_text(run, job.suites).model_dump_json(indent=2) + "\n")
        seconds = time.monotonic() - start
    added = run.config.training.max_epochs - job.config.training.max_epochs
    report = {
        **result.summary(),
        "extended": added // job.extend.epochs if job.extend is not None else 0,
        "seconds": round(sum(run.seconds().values()), 3),
        "seconds_measuring": round(seconds, 3),
    }
    run.replace(RESULT, json.dumps(report, indent=2) + "\n")


def is_done(folder: Path, measures: tuple[Measure, ...]) -> bool:
    """Return whether a trial is complete, and everything has been measured."""
    return all((folder / name).exists() for name in (RESULT, *(f"{measure}.json" for measure in measures)))


def measure_text(run: Run, suites: str | None) -> TextMeasures:
    """Return the perplexity of a run on the test part of its corpus and, if there are suites, SG scores."""
    settings, model = launch.corpus_of(run.config), run.load()
    corpus = launch.open_corpus(settings)
    if "test" not in corpus.header.splits:
        raise NdstackError(f"{settings.folder} has no test part")
    part = text.batches(model, corpus["test"], settings.rows, settings.length)
    perplexity = text.perplexity(text.corpus_nats(model, part))
    if suites is None:
        return TextMeasures(test_perplexity=perplexity)
    found = [text.read_suite(path) for path in find_suites([Path(suites)])]
    scores = text.evaluate_suites(found, text.ModelScorer(model))
    circuits = {SHORT.get(name, name): value for name, value in scores.by_circuit("dissertation").items()}
    return TextMeasures(test_perplexity=perplexity, sg_score=scores.score("dissertation"), circuits=circuits)


def more_epochs(run: Run, config: RunConfig, rule: Extend | None) -> int | None:
    """Return the new epoch limit of a run that still improves at its limit; None if it has to end there.

    Args:
        run: the run as it is now.
        config: the configuration with which the run started.
        rule: the rule of the sweep.
    """
    history, training = run.metrics(), run.config.training
    if rule is None or not history or history[-1].get("stage", 1) <= len(training.stages):
        return None
    limit, most = training.max_epochs, config.training.max_epochs + rule.times * rule.epochs
    falling = history[-1]["epoch"] - best_epoch(history)["epoch"] < rule.within
    at_limit = len(last_stage(history)) >= limit
    return limit + rule.epochs if falling and at_limit and limit + rule.epochs <= most else None


def is_machine_fault(error: BaseException) -> bool:
    """Return whether an error is a fault of the machine, such as its disk, a lock or lack of memory."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError | BusyError) or is_out_of_memory(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def parse_job(text: str | bytes) -> Job:
    """Return a job given as JSON."""
    try:
        return Job.model_validate_json(text)
    except ValidationError as error:
        raise NdstackError(f"not a job: {first_problem(error)}") from None


def _train(folder: Path, config: RunConfig | None) -> Result:
    known = config or Run.open(folder).config
    return train(folder, config) if known.corpus is None else launch.train_on_text(folder, config)


def _empty(folder: Path) -> None:
    """Remove the files of a run that ended before it saved anything."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != files.LOCK:
            entry.unlink()
