"""From run folders and sweep folders to rows of the tables of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Values
from ndstack.experiments.identity import describe_stages, portable_settings, record_id
from ndstack.experiments.jobs import RESULT, TEST, TEXT
from ndstack.experiments.records import Ended, Epoch, Record, Tables, is_tables, rounded
from ndstack.experiments.stack_views import View, ViewName, possible_views, summarize, views_of
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import expand
from ndstack.nn.models import parse
from ndstack.training import Run, RunConfig
from ndstack.training.machine import cpu_model, simd
from ndstack.training.material import language_of, make_model
from ndstack.training.run import BEST, ENVIRONMENT, LOG, best_epoch, is_run

Row = tuple[Record, list[Epoch], dict[ViewName, View]]


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a run folder alone does not say."""

    experiment: str = ""
    label: str = ""
    commit: str = ""
    cpu: str = ""
    simd: str = ""


@dataclasses.dataclass
class Gathered:
    """What came of gathering: identifiers of runs."""

    added: list[str] = dataclasses.field(default_factory=list)
    updated: list[str] = dataclasses.field(default_factory=list)
    same: list[str] = dataclasses.field(default_factory=list)
    incomplete: list[str] = dataclasses.field(default_factory=list)
    """Those of all the above that had not ended."""


def gather(
    folders: Sequence[str | Path], out: str | Path, *, commit: str = "", this_machine: bool = False
) -> Gathered:
    """Put runs into the tables of a folder; those that are there already are brought up to date.

    Args:
        folders: run folders, sweep folders, or folders with either somewhere in them.
        out: where the tables are, or will be.
        commit: of the code that made the runs, for those that do not say.
        this_machine: whether the runs were made on this machine, for those that do not say.
    """
    base = Origin(commit=commit, cpu=cpu_model(), simd=simd()) if this_machine else Origin(commit=commit)
    runs = [pair for folder in folders for pair in find_runs(Path(folder), base)]
    out, found = Path(out), Gathered()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with files.locked(out):
            tables = Tables.read(out) if is_tables(out) else Tables.empty()
            for run, origin in runs:
                tables = _take(tables, run, origin, found)
            if found.added or found.updated or not is_tables(out):
                tables.write(out)
    except OSError as error:
        raise NdstackError(f"cannot write tables to {out}: {error.strerror or error}") from None
    return found


def _take(tables: Tables, run: Run, origin: Origin, found: Gathered) -> Tables:
    """With one more run; one that is known as well or better already stays as it is."""
    views: dict[ViewName, View] = {}
    record, curve = read_run(run, origin)
    old = tables.runs.get(record.id)
    if not record.complete:
        found.incomplete.append(record.id)
    wanted = possible_views(run)
    if old is not None and _worth(old, len(old.stack_measures)) >= _worth(record, len(wanted)):
        found.same.append(record.id)
        return tables
    if wanted:
        views = views_of(run)  # which takes much longer than all the rest
        record = record.model_copy(update={"stack_measures": summarize(views)})
    (found.added if old is None else found.updated).append(record.id)
    return tables.with_run(record, curve, views)


def _worth(record: Record, views: int) -> tuple[bool, int, int]:
    """What is known of a run: the greater, the more."""
    measured = (record.test_by_length, record.test_perplexity, record.sg_score, views)
    return record.complete, record.epochs, sum(bool(one) for one in measured)


def read_folder(folder: Path, origin: Origin | None = None) -> list[Row]:
    """The rows of all runs in a folder that have a complete epoch."""
    found = []
    for run, own in find_runs(folder, origin or Origin()):
        views = views_of(run)
        found.append((*read_run(run, own, views), views))
    return found


def find_runs(folder: Path, origin: Origin) -> list[tuple[Run, Origin]]:
    """All runs in a folder that have a complete epoch, each with what its own folder does not say.

    A run that another one of them started from is left out: its epochs are the first stage of that other one.
    """
    places = [folder] if is_run(folder) else sorted(path.parent for path in folder.rglob("config.json"))
    if not places:
        raise NdstackError(
            f"{folder} has no runs in it; expected what ndstack train, sweep or reproduce made"
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
    """Of the trials of a sweep: which experiment they are for, and the label of the model."""
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
    run: Run, origin: Origin | None = None, views: dict[ViewName, View] | None = None
) -> tuple[Record, list[Epoch]]:
    """The row of a run, and those of its epochs.

    Args:
        run: with one complete epoch or more.
        origin: what its folder does not say.
        views: of its stack, for the numbers that claims about them need.
    """
    origin, config = origin or Origin(), run.config
    curve, stages = _curve(run)
    history = run.metrics()
    last = [line for line in history if line.get("stage") == history[-1].get("stage")]
    best = best_epoch(last)
    waited = last[-1]["epoch"] - best["epoch"]
    name = record_id(config, stages)
    environment, result = _read(run.folder / ENVIRONMENT), _read(run.folder / RESULT)
    text = _read(run.folder / TEXT)
    values: Values = {
        "id": name,
        "experiment": origin.experiment,
        "label": origin.label,
        "language": config.language,
        "model": config.model or "",
        "seed": config.seed,
        "learning_rate": config.training.learning_rate,
        "stages": stages,
        "bottom_fix": _bottom_fix(config),
        "config": portable_settings(config),
        "parameters": _parameters(run),
        "epochs": len(curve),
        "best_epoch": len(curve) - waited,
        "waited": waited,
        "cross_entropy": best["validation_cross_entropy"],
        "difference": best.get("validation_difference"),
        "updates": result.get("updates", _updates(config, len(curve))),
        "ended": _ended(config, waited, len(last)),
        "seconds": round(sum(epoch.seconds or 0.0 for epoch in curve), 1),
        "threads": config.training.threads,
        "version": environment.get("ndstack", ""),
        "commit": environment.get("commit") or origin.commit,
        "cpu": environment.get("cpu") or origin.cpu,
        "simd": environment.get("simd") or origin.simd,
        "date": _date(run.folder / LOG),
        **_test(run.folder / TEST),
        "perplexity": best.get("validation_perplexity"),
        "test_perplexity": text.get("test_perplexity"),
        "sg_score": text.get("sg_score"),
        "circuits": text.get("circuits", {}),
        "stack_measures": summarize(views or {}),
        "processor_seconds": _total([epoch.processor_seconds for epoch in curve]),
    }
    record = Record.model_validate({**rounded(values), "config": values["config"]})
    return record, [epoch.model_copy(update={"run": name}) for epoch in curve]


def _total(values: Sequence[float | None]) -> float | None:
    """The sum, if all are known."""
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if len(known) == len(values) else None


def _start(run: Run) -> Path | None:
    """The run that this one started from, if it is still there."""
    if run.config.start_from is None:
        return None
    place = files.real_path(run.folder / run.config.start_from)
    return place if is_run(place) else None


def _curve(run: Run) -> tuple[list[Epoch], str]:
    """The epochs of a run, those of runs that it started from first; and its stages."""
    chain = [run]
    while (source := _start(chain[0])) is not None and len(chain) < 10:
        chain.insert(0, Run.open(source))
    curve: list[Epoch] = []
    for number, one in enumerate(chain, 1):
        times, worked = one.seconds(), one.seconds("processor_seconds")
        for line in one.metrics():
            epoch = {
                "run": "",
                "stage": line.get("stage", number),
                "epoch": len(curve) + 1,
                "cross_entropy": line["validation_cross_entropy"],
                "difference": line.get("validation_difference"),
                "train": line.get("train_cross_entropy"),
                "learning_rate": line.get("learning_rate"),
                "seconds": times.get(line["epoch"]),
                "processor_seconds": worked.get(line["epoch"]),
            }
            curve.append(Epoch.model_validate(rounded(epoch, 6)))
    return curve, describe_stages(*(one.config for one in chain))


def _bottom_fix(config: RunConfig) -> bool | None:
    if config.model is None:
        return None
    kind = parse(config.model).stack
    if kind.startswith(("ns", "rns", "vrns")):
        given = config.options.bottom_fix
        return kind in ("rns", "vrns") if given is None else given
    return None


def _ended(config: RunConfig, waited: int, epochs: int) -> Ended:
    if waited >= config.training.stop_after:
        return "converged"
    return "epoch limit" if epochs >= config.training.max_epochs else "interrupted"


def _updates(config: RunConfig, epochs: int) -> int | None:
    """Of a run on a formal language, where every epoch has as many batches."""
    if config.corpus is not None:
        return None
    return epochs * -(-config.data.train // config.data.batch_size)


def _parameters(run: Run) -> int | None:
    """As kept, or else counted in a model that is made for it."""
    if (run.folder / BEST).exists() or run.config.corpus is not None or run.config.model is None:
        value = run.summary()["parameters"]
        return None if value is None else int(value)
    model = make_model(run.config, language_of(run.config))
    return sum(parameter.numel() for parameter in model.parameters())


def _test(path: Path) -> Values:
    """What was measured on the test set, overall and by length."""
    found = _read(path) if path.exists() else {"by_length": []}
    try:
        rows = {int(row["length"]): float(row["difference"]) for row in found["by_length"]}
        overall = found.get("overall", {}).get("difference")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NdstackError(
            f"{path} is damaged: expected what ndstack evaluate writes; remove it, and the sweep writes "
            "it again"
        ) from None
    return {"test_difference": overall, "test_by_length": rounded(rows, 6)}


def _date(log: Path) -> str:
    """Of the last line of a run's log, without the time."""
    lines = files.read_text(log).splitlines() if log.exists() else []
    return lines[-1][:10] if lines else ""


def _read(path: Path) -> Values:
    """What a file of a run says; nothing if it is not there."""
    if not path.exists():
        return {}
    found = files.read_json(path)
    if not isinstance(found, dict):
        raise NdstackError(f"{path} is damaged: expected a JSON object")
    return found
