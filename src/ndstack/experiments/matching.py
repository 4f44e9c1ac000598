"""The runs in tables that belong to each line of the dissertation's figures, because they have its settings.

The limit of epochs, the seed and the machine of a run do not matter. A run with stages of training belongs to
no line of the dissertation.
"""

import functools
import math
from collections.abc import Iterator, Sequence

from ndstack.experiments.experiment import Experiment, LogUniform, ModelSpec
from ndstack.experiments.records import Record, Tables, Views
from ndstack.experiments.results import Finished
from ndstack.settings.reading import Table, flatten, merge
from ndstack.settings.recipes import with_task_defaults
from ndstack.training import RunConfig

COMPARED = ("task", "recognition.", "options.", "data.", "training.")
FREE = {
    "options.bottom_fix",  # its effect is compared
    "data.test_per_length",
    "data.test_lengths",
    "data.test_step",
    "data.folder",
    "data.sha256",
    "training.seed",
    "training.max_epochs",
    "training.stop_after",
    "training.device",
    "training.processes",
    "training.threads",
    "training.checkpoint_seconds",
    "training.snapshots",
    "training.stages",
}
"""The settings in which the runs of a line may differ."""


def runs_of(tables: Tables, experiment: Experiment, *, staged: bool = False) -> list[Finished]:
    """Return the runs with the settings of an experiment, in the order of its models.

    Args:
        tables: the tables of results.
        experiment: the experiment.
        staged: whether only runs with stages of training count, the last of which has these settings; by
            default, only runs without stages count.
    """
    found = []
    for model in experiment.models:
        for name, language in _places(experiment, model):
            mine = [one for one in tables.runs.values() if one.model == name and _on(one, language)]
            wanted = _wanted(experiment, model, name)
            fitting = [one for one in mine if one.best_epoch and _fits(one, experiment, wanted, staged)]
            for restart, one in enumerate(sorted(fitting, key=lambda one: (one.seed, one.id))):
                setting = (("model", name), *_chosen(one, experiment))
                named, views = _named(one, language), tables.views.get(one.id, Views())
                curve = tables.curves[one.id]
                found.append(Finished(named, curve, model.label, setting, restart, views=views))
    return found


def _places(experiment: Experiment, model: ModelSpec) -> Iterator[tuple[str, str]]:
    for language in ["*"] if experiment.text else experiment.all_languages():
        for name in model.on(experiment.languages[0] if language == "*" else language):
            yield name, language


def _on(record: Record, language: str) -> bool:
    """Return whether a run is on a language; k is 2 by default."""
    if language == "*":
        return record.is_text
    return not record.is_text and record.language in (language, language.removesuffix("(k=2)"))


def _named(record: Record, language: str) -> Record:
    return record if language == "*" else record.model_copy(update={"language": language})


def _wanted(experiment: Experiment, model: ModelSpec, name: str) -> Table:
    values = {"language": "x", "model": name, **merge(experiment.settings, model.settings)}
    return _compared(RunConfig.of(with_task_defaults(values), experiment.name))


def _compared(config: RunConfig) -> Table:
    values = flatten(config.model_dump(mode="json", exclude={"corpus"}))
    kept = {key: value for key, value in values.items() if key.startswith(COMPARED) and key not in FREE}
    fix = config.options.bottom_fix
    kind = (config.model or "").removeprefix("tf+").partition("-")[0]
    return {**kept, "bottom_fix": kind in ("rns", "vrns") if fix is None else fix}


@functools.lru_cache(maxsize=4096)
def _own(text: str) -> Table:
    return _compared(RunConfig.model_validate_json(text))


def settings_of(record: Record) -> Table:
    """Return the settings by which runs are distinguished, such as `training.eos`."""
    return _own(record.settings.model_dump_json())


def _fits(record: Record, experiment: Experiment, wanted: Table, staged: bool) -> bool:
    if bool(record.stages) != staged or ("start_from" in record.config and not record.stages):
        return False
    own = settings_of(record)
    for key, value in own.items():
        choices = experiment.search.get(key)
        if choices is None:
            if wanted.get(key) != value:
                return False
        elif not _allowed(value, choices):
            return False
    return True


def _allowed(value: object, choices: LogUniform | Sequence[object]) -> bool:
    if isinstance(choices, LogUniform):
        return isinstance(value, float | int) and choices.low <= value <= choices.high
    return any(
        math.isclose(value, one) if isinstance(value, float) and isinstance(one, float) else value == one
        for one in choices
    )


def _chosen(record: Record, experiment: Experiment) -> list[tuple[str, object]]:
    """Return the values from grids."""
    own = settings_of(record)
    grids = sorted(key for key, values in experiment.search.items() if not isinstance(values, LogUniform))
    return [(key, own[key]) for key in grids]
