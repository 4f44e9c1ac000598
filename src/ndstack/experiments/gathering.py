"""From run folders and sweep folders to rows of the tables of results."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.identity import describe_stages, portable_settings, record_id
from ndstack.experiments.jobs import RESULT, TEST, TEXT, JobResult, TextMeasures
from ndstack.experiments.records import Ended, Epoch, Record, Tables, Views, is_tables
from ndstack.experiments.stack_views import possible_views, summarize, views_of
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import expand
from ndstack.nn.models import parse
from ndstack.training import Run, RunConfig
from ndstack.training.machine import cpu_model, simd
from ndstack.training.material import language_of, make_model
from ndstack.training.run import BEST, ENVIRONMENT, LOG, best_epoch, is_run, last_stage

_Content = TypeVar("_Content", bound=BaseModel)


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the folder of a run does not contain."""

    experiment: str = ""
    label: str = ""
    commit: str = ""
    cpu: str = ""
    simd: str = ""


class _Environment(BaseModel):
    ndstack: str = ""
    commit: str = ""
    cpu: str = ""
    simd: str = ""


class _TestRow(BaseModel):
    length: int | None = None
    kind: str = ""
    difference: float | None = None
    accuracy: float | None = None
    score: float | None = None


class _Test(BaseModel):
    overall: _TestRow | None = None
    by_length: list[_TestRow]
    by_kind: list[_TestRow] = []
    generalization: dict[str, float] = {}

    def differences(self) -> dict[int, float]:
        return {row.length or 0: row.difference for row in self.by_length if row.difference is not None}

    def accuracies(self) -> dict[int, float]:
        return {row.length or 0: row.accuracy for row in self.by_length if row.accuracy is not None}


@dataclasses.dataclass
class Gathered:
    """The identifiers of the runs that were gathered."""

    added: list[str] = dataclasses.field(default_factory=list)
    updated: list[str] = dataclasses.field(default_factory=list)
    same: list[str] = dataclasses.field(default_factory=list)
    incomplete: list[str] = dataclasses.field(default_factory=list)
    """The runs among all of these that have not ended."""


def gather(
    folders: Sequence[str | Path], out: str | Path, *, commit: str = "", this_machine: bool = False
) -> Gathered:
    """Add runs to the tables in a folder, or update their rows.

    Args:
        folders: run folders, sweep folders, or folders that contain them at any depth.
        out: the folder of the tables.
        commit: the commit of the code that made the runs, if they do not record it.
        this_machine: whether the runs were made on this machine, if they do not record it.
    """
    base = Origin(commit=commit, cpu=cpu_model(), simd=simd()) if this_machine else Origin(commit=commit)
    runs = [pair for folder in folders for pair in find_runs(Path(folder), base)]
    out, found = Path(out), Gathered()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with files.locked(out):
            tables = Tables.read(out) if is_tables(out) else Tables.empty()
            for run, origin in runs:
                tables = take_run(tables, run, origin, found)
            if found.added or found.updated or not is_tables(out):
                tables.write(out)
    except OSError as error:
        raise NdstackError(f"cannot write tables to {out}: {error.strerror or error}") from None
    return found


def take_run(tables: Tables, run: Run, origin: Origin, found: Gathered) -> Tables:
    """Return the tables with one more run, unless they already contain the same or more about it."""
    views = Views()
    record, curve = read_run(run, origin)
    old = tables.runs.get(record.id)
    if not record.complete:
        found.incomplete.append(record.id)
    wanted = possible_views(run)
    if old is not None and _worth(old, len(old.stack_measures)) >= _worth(record, len(wanted)):
        found.same.append(record.id)
        return tables
    if wanted:
        views = views_of(run)  # this takes much longer than everything else
        record = record.model_copy(update={"stack_measures": summarize(views)})
    (found.added if old is None else found.updated).append(record.id)
    return tables.with_run(record, curve, views)


def _worth(record: Record, views: int) -> tuple[bool, int, int]:
    """Return how much is known about a run; more is greater."""
    measured = (
        record.test_by_length,
        record.test_perplexity,
        record.sg_score,
        record.test_accuracy is not None,
        views,
    )
    return record.complete, record.epochs, sum(bool(one) for one in measured)


def find_runs(folder: Path, origin: Origin) -> list[tuple[Run, Origin]]:
    """Return all runs in a folder that have a complete epoch, each with what its folder does not contain.

    A run from which another one started is left out, because its epochs are the first stage of the other.
    """
    places = [folder] if is_run(folder) else sorted(path.parent for path in folder.rglob("config.json"))
    if not places:
        raise NdstackError(
            f"{folder} has no runs in it; expected a folder that ndstack train, sweep or reproduce made"
        )
    known = _origins(folder, origin)
    runs = [Run.open(place) for place in places]
    begun = {source for run in runs for source in [_start(run)] if source is not None}
    return [
        (run, known.get(run.folder.name, origin))
        for run in runs
        if files.real_path(run.folder) not in begun and run.metrics()
    ]


def _origins(folder: Path, origin: Origin) -> dict[str, Origin]:
    """Return the experiment and the label of each trial of a sweep."""
    if not (folder / "experiments").is_dir():
        return {}
    known: dict[str, Origin] = {}
    for plan in SweepFolder(folder).planned():
        for trial in expand(plan.experiment):
            known.setdefault(
                trial.id, dataclasses.replace(origin, experiment=plan.experiment.name, label=trial.label)
            )
    return known


def read_run(
    run: Run, origin: Origin | None = None, views: Views | None = None
) -> tuple[Record, list[Epoch]]:
    """Return the row of a run, and the rows of its epochs.

    Args:
        run: a run with at least one complete epoch.
        origin: what its folder does not contain.
        views: the views of its stack, for the numbers by which claims about them are decided.
    """
    origin, config, folder = origin or Origin(), run.config, run.folder
    curve, stages = _curve(run)
    last = last_stage(run.metrics())
    best = best_epoch(last)
    waited = int(last[-1]["epoch"] - best["epoch"])
    environment, text = _read(folder / ENVIRONMENT, _Environment), _read(folder / TEXT, TextMeasures)
    updates = _read(folder / RESULT, JobResult).updates
    test = _read_test(folder / TEST)
    record = Record(
        id=record_id(config, stages),
        experiment=origin.experiment,
        label=origin.label,
        language=config.language,
        model=config.model or "",
        seed=config.seed,
        learning_rate=config.training.learning_rate,
        stages=stages,
        bottom_fix=_bottom_fix(config),
        config=portable_settings(config),
        parameters=_parameters(run),
        epochs=len(curve),
        best_epoch=len(curve) - waited,
        waited=waited,
        cross_entropy=best["validation_cross_entropy"],
        difference=best.get("validation_difference"),
        updates=_updates(config, len(curve)) if updates is None else updates,
        ended=_ended(config, waited, len(last)),
        seconds=round(sum(epoch.seconds or 0.0 for epoch in curve), 1),
        threads=config.training.threads,
        version=environment.ndstack,
        commit=environment.commit or origin.commit,
        cpu=environment.cpu or origin.cpu,
        simd=environment.simd or origin.simd,
        date=_date(folder / LOG),
        test_difference=None if test.overall is None else test.overall.difference,
        test_by_length=test.differences(),
        perplexity=best.get("validation_perplexity"),
        test_perplexity=text.test_perplexity,
        sg_score=text.sg_score,
        circuits=text.circuits,
        stack_measures=summarize(views or Views()),
        processor_seconds=_total([epoch.processor_seconds for epoch in curve]),
        accuracy=best.get("validation_accuracy"),
        test_accuracy=None if test.overall is None else _first(test.overall.score, test.overall.accuracy),
        generalization=test.generalization,
        accuracy_by_length=test.accuracies(),
        accuracy_by_kind={row.kind: row.accuracy for row in test.by_kind if row.accuracy is not None},
    )
    return record, [epoch.model_copy(update={"run": record.id}) for epoch in curve]


def _first(*values: float | None) -> float | None:
    """Return the first value that is known."""
    return next((value for value in values if value is not None), None)


def _total(values: Sequence[float | None]) -> float | None:
    """Return the sum if all values are known."""
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if len(known) == len(values) else None


def _start(run: Run) -> Path | None:
    """Return the folder of the run from which this one started, if it still exists."""
    if run.config.start_from is None:
        return None
    place = files.real_path(run.folder / run.config.start_from)
    return place if is_run(place) else None


def _curve(run: Run) -> tuple[list[Epoch], str]:
    """Return the epochs of a run, after those of the runs from which it started, and its stages."""
    chain = [run]
    while (source := _start(chain[0])) is not None and len(chain) < 10:
        chain.insert(0, Run.open(source))
    curve: list[Epoch] = []
    for number, one in enumerate(chain, 1):
        times, worked = one.seconds(), one.seconds("processor_seconds")
        for line in one.metrics():
            epoch = int(line["epoch"])
            curve.append(
                Epoch(
                    stage=int(line.get("stage", number)),
                    epoch=len(curve) + 1,
                    cross_entropy=line["validation_cross_entropy"],
                    difference=line.get("validation_difference"),
                    train=line.get("train_cross_entropy"),
                    learning_rate=line.get("learning_rate"),
                    seconds=times.get(epoch),
                    processor_seconds=worked.get(epoch),
                )
            )
    return curve, describe_stages(*(one.config for one in chain))


def _bottom_fix(config: RunConfig) -> bool | None:
    parsed = None if config.model is None else parse(config.model)
    if parsed is None or not parsed.nondeterministic:
        return None
    given = config.options.bottom_fix
    return parsed.stack in ("rns", "vrns") if given is None else given


def _ended(config: RunConfig, waited: int, epochs: int) -> Ended:
    if waited >= config.training.stop_after:
        return "converged"
    return "epoch limit" if epochs >= config.training.max_epochs else "interrupted"


def _updates(config: RunConfig, epochs: int) -> int | None:
    """Return the number of updates in a run on a formal language, whose epochs all have the same length."""
    if config.corpus is not None:
        return None
    return epochs * -(-config.data.train // config.data.batch_size)


def _parameters(run: Run) -> int | None:
    """Return the number of parameters of the best model, or else of a new model."""
    if (run.folder / BEST).exists() or run.config.corpus is not None or run.config.model is None:
        return run.count_parameters()
    model = make_model(run.config, language_of(run.config))
    return sum(parameter.numel() for parameter in model.parameters())


def _read_test(path: Path) -> _Test:
    if not path.exists():
        return _Test(by_length=[])
    hint = "; remove it, and the sweep writes it again"
    return files.read_json_as(path, _Test, "what ndstack evaluate writes", hint)


def _date(log: Path) -> str:
    """Return the date of the last line of a run's log."""
    lines = files.read_text(log).splitlines() if log.exists() else []
    return lines[-1][:10] if lines else ""


def _read(path: Path, kind: type[_Content]) -> _Content:
    """Return the content of a file of a run; if there is no such file, the defaults."""
    return files.read_json_as(path, kind, "what the run wrote") if path.exists() else kind()
