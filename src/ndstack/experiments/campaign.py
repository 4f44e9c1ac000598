"""Several experiments in one file, in order of what they tell: a campaign.

name = "campaign"

[[experiments]]                       # as in a file of its own
name = "mine"
languages = ["dyck"]
models = [{ label = "LSTM", names = ["lstm"] }]

[[experiments]]
from = "capacity"                     # an experiment of the dissertation, or a file beside this one
name = "capacity-three-runs"          # what is different here
restarts = 3
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.registry import find
from ndstack.settings.reading import merge, read_toml

KNOWN = ("name", "title", "experiments")


def read_experiments(path: Path) -> list[Experiment]:
    """The experiments of a file: one, or those of a campaign in order."""
    values = read_toml(path)
    if "experiments" not in values:
        return [Experiment.of(values, str(path))]
    for key in values.keys() - {*KNOWN}:
        raise NdstackError(
            f"{path}: {key}: there is no such name beside experiments; it has {', '.join(KNOWN)}"
        )
    entries = values["experiments"]
    if not isinstance(entries, list) or not entries:
        raise NdstackError(f"{path}: experiments: expected one [[experiments]] table or more")
    found = [_experiment(path, number, entry) for number, entry in enumerate(entries, 1)]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise NdstackError(f"{path}: two experiments are called {name}, expected different names")
    return found


def _experiment(path: Path, number: int, entry: object) -> Experiment:
    source = f"{path}, experiment {number}"
    if not isinstance(entry, Mapping):
        raise NdstackError(f"{source}: expected a table")
    own = {key: value for key, value in entry.items() if key != "from"}
    if "from" not in entry:
        return Experiment.of(own, source)
    start = entry["from"]
    if not isinstance(start, str):
        raise NdstackError(f"{source}: from is {start!r}, expected an experiment's name or a file")
    file = start.endswith(".toml")
    base = read_toml(path.parent / start) if file else find(start).model_dump(mode="json")
    return Experiment.of(merge(base, own), source)
