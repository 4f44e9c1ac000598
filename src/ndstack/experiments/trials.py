"""From an experiment to its trials, each of which is a configuration with a name that depends on it alone."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment, LogUniform, ModelSpec
from ndstack.experiments.identity import trial_id
from ndstack.settings.reading import merge, nested
from ndstack.settings.recipes import with_task_defaults
from ndstack.training import RunConfig

Setting = tuple[tuple[str, object], ...]
RUN_SEED, DRAWS, ORDER = 0, 1, 2
"""The numbers of random streams: for the seed of a run, for random settings, for the order of a grid."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of an experiment."""

    id: str
    """The identifier of its configuration, which is the same in every experiment."""
    label: str
    """The label of the model in figures and tables."""
    language: str
    setting: Setting
    """The model's name and the values from grids, which restarts have in common."""
    restart: int
    config: RunConfig

    @property
    def base_language(self) -> str:
        """The language without an alphabet size."""
        return self.language.partition("(")[0]


def expand(experiment: Experiment) -> list[Trial]:
    """Return all trials of an experiment; the first ones cover all models and languages."""
    grids = {key: values for key, values in experiment.search.items() if not isinstance(values, LogUniform)}
    settings = [dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())]
    pairs = [(model, language) for language in experiment.all_languages() for model in experiment.models]
    trials: list[Trial] = []
    for restart in range(experiment.restarts):
        rows = [[_Place(*pair, chosen, restart) for pair in pairs] for chosen in settings]
        if experiment.order == "shuffled":
            rows = _shuffle(experiment.seed, rows)
        for row in rows:
            for place in row:
                trials += (_trial(experiment, place, name) for name in place.model.on(place.language))
    seen: set[str] = set()
    for trial in trials:
        if trial.id in seen:
            raise NdstackError(f"{experiment.name} has the trial {trial.id} twice; name every model once")
        seen.add(trial.id)
    return trials


class _Place(NamedTuple):
    """A model on a language with one setting of the grid."""

    model: ModelSpec
    language: str
    chosen: Mapping[str, object]
    restart: int


def _shuffle(seed: int, rows: list[list[_Place]]) -> list[list[_Place]]:
    """Return the rows with every column, which is one model on one language, shuffled separately."""
    columns = []
    for column in zip(*rows, strict=True):
        first = column[0]
        name = json.dumps([seed, first.model.label, first.language, first.restart])
        entropy = list(hashlib.sha256(name.encode()).digest())
        order = np.random.default_rng([*entropy, ORDER]).permutation(len(column))
        columns.append([column[place] for place in order])
    return [list(row) for row in zip(*columns, strict=True)]


def choose(trials: Sequence[Trial], only: str) -> list[Trial]:
    """Return the trials that `model=rns-2-3,language=dyck` selects; a key may have several values."""
    wanted: dict[str, set[str]] = {}
    for part in re.split(r",(?=\s*\w+=)", only):  # labels may contain commas
        key, equals, value = part.partition("=")
        if key.strip() not in ("model", "language") or not equals:
            raise NdstackError(f"--only {only!r} given, expected for example model=rns-2-3,language=dyck")
        wanted.setdefault(key.strip(), set()).add(value.strip())
    for key, values in wanted.items():
        have = {name for trial in trials for name in _names(trial)[key]}
        for value in values - have:
            raise NdstackError(f"no trial has {key}={value}; there are {', '.join(sorted(have))}")
    return [trial for trial in trials if all(_names(trial)[key] & wanted[key] for key in wanted)]


def _names(trial: Trial) -> dict[str, set[str]]:
    """Return the values with which a trial can be selected."""
    return {
        "model": {trial.label, str(trial.config.model)},
        "language": {trial.language, trial.base_language},
    }


def _trial(experiment: Experiment, place: _Place, name: str) -> Trial:
    model, language, chosen, restart = place
    identity = [experiment.seed, name, model.settings, language, dict(chosen), restart]
    entropy = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    numbers = [int.from_bytes(entropy[first : first + 4]) for first in range(0, 32, 4)]
    drawn = {
        key: _draw(values, [*numbers, DRAWS, *key.encode()])
        for key, values in experiment.search.items()
        if isinstance(values, LogUniform)
    }
    seed = int(np.random.default_rng([*numbers, RUN_SEED]).integers(2**31))
    base = {"language": language, "model": name, "seed": seed, "training": {"threads": 1}}
    values = merge(merge(base, experiment.settings), model.settings)
    for key, value in {**chosen, **drawn}.items():
        values = merge(values, nested(key.split("."), value))
    config = RunConfig.of(with_task_defaults(values), f"{experiment.name}: {model.label} on {language}")
    setting = (("model", name), *((key, _hashable(chosen[key])) for key in sorted(chosen)))
    return Trial(trial_id(config), model.label, language, setting, restart, config)


def _hashable(value: object) -> object:
    """Return a value of a grid; stages, which are lists, as JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _draw(choices: LogUniform, entropy: list[int]) -> float:
    """Return a random value with six digits, so that trials have the same names on all machines."""
    share = np.random.default_rng(entropy).random()
    low, high = math.log(choices.low), math.log(choices.high)
    return float(f"{math.exp(low + share * (high - low)):.6g}")
