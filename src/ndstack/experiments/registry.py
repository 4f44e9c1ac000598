"""The dissertation's experiments, by name or by the number of a figure or table."""

from __future__ import annotations

import difflib
import functools
import tomllib
from importlib import resources

from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Experiment

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
    """The experiment of this name."""
    path = resources.files("ndstack.experiments") / "dissertation" / f"{name}.toml"
    return Experiment.of(tomllib.loads(path.read_text(encoding="utf-8")), path.name)


def all_experiments() -> list[Experiment]:
    """In the order of the dissertation."""
    return [load(name) for name in ORDER]


def find(name: str) -> Experiment:
    """The experiment called so, or the one that makes this figure or table: `cfls`, `figure-6.1`."""
    wanted = name.strip().lower().replace(" ", "-")
    if wanted in ORDER:
        return load(wanted)
    labels = {output.label: one for one in all_experiments() for output in one.outputs}
    if wanted in labels:
        return labels[wanted]
    near = difflib.get_close_matches(wanted, [*ORDER, *labels], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ORDER)}"
    raise NdstackError(f"there is no experiment called {name!r}; {hint}")
