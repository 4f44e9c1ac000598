"""Experiments of the dissertation, by name or by the number of a figure or table, and those in files."""

import difflib
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment
from ndstack.settings.reading import merge, read_toml

CAMPAIGN = ("name", "title", "experiments")
ORDER = (
    "ns-cfls",
    "cfls",
    "times",
    "evolution",
    "ptb",
    "non-cfls",
    "capacity",
    "readings",
    "ptb-vectors",
    "stack-attention",
)


@functools.cache
def load(name: str) -> Experiment:
    """Return the experiment of this name."""
    path = resources.files("ndstack.experiments") / "dissertation" / f"{name}.toml"
    return Experiment.of(tomllib.loads(path.read_text(encoding="utf-8")), path.name)


def all_experiments() -> list[Experiment]:
    """Return all experiments of the dissertation, in its order."""
    return [load(name) for name in ORDER]


def find(name: str) -> Experiment:
    """Return the experiment of this name, or the one of this figure or table: `cfls`, `figure-6.1`."""
    wanted = name.strip().lower().replace(" ", "-")
    if wanted in ORDER:
        return load(wanted)
    labels = {output.label: one for one in all_experiments() for output in one.outputs}
    if wanted in labels:
        return labels[wanted]
    near = difflib.get_close_matches(wanted, [*ORDER, *labels], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ORDER)}"
    raise NdstackError(f"there is no experiment called {name!r}; {hint}")


def shipped(path: Path) -> Path:
    """Return the file of an experiment that ships with the package, such as `questions`; or the path."""
    own = Path(str(resources.files("ndstack.experiments") / "tasks" / f"{path.name}.toml"))
    return own if path.name == str(path) and not path.is_file() and own.is_file() else path


def read_experiments(path: Path) -> list[Experiment]:
    """Return the experiment in a file, or those of a campaign in order.

    The names `chomsky`, `recognition` and `questions` stand for files that ship with the package.

    A campaign is a file with several tables:

        [[experiments]]                       # as in a separate file
        name = "mine"
        languages = ["dyck"]
        models = [{ label = "LSTM", names = ["lstm"] }]

        [[experiments]]
        from = "capacity"                     # an experiment of the dissertation, or a file in this folder
        name = "capacity-three-runs"          # what differs from it
        restarts = 3
    """
    values = read_toml(shipped(path))
    if "experiments" not in values:
        return [Experiment.of(values, str(path))]
    for key in values.keys() - {*CAMPAIGN}:
        raise NdstackError(
            f"{path}: {key}: there is no such name in a campaign; expected {', '.join(CAMPAIGN)}"
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
