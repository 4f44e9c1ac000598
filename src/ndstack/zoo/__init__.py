"""Networks that have learned their languages, a few kilobytes each, by name: `zoo:unmarked-reversal/rns-2-3`.

Each is a small run folder in this package: configuration, parameters, metrics, and its row of the tables of
results. Such a name can be given wherever a run folder can.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from ndstack.errors import NdstackError

__all__ = ["HERE", "PREFIX", "ROW", "entry", "is_zoo", "names", "resolve"]

PREFIX = "zoo:"
HERE = Path(__file__).parent
ROW = "row.json"
"""The row of the tables of results, as JSON."""


def names() -> list[str]:
    """All of them, as they are given: `zoo:LANGUAGE/MODEL`."""
    return [f"{PREFIX}{path.parent.relative_to(HERE).as_posix()}" for path in sorted(HERE.glob(f"*/*/{ROW}"))]


def is_zoo(name: str | Path) -> bool:
    """Whether this names a network of the zoo."""
    return str(name).startswith(PREFIX)


def entry(language: str, model: str) -> str:
    """The name of a network: that of its language and that of its model, without brackets."""
    return f"{PREFIX}{re.sub(r'[^a-z0-9+-]+', '', language.replace('(', '-'))}/{model}"


def resolve(name: str | Path) -> Path:
    """The folder of a network of the zoo; any other name is that of a folder already."""
    if not is_zoo(name):
        return Path(name)
    known = names()
    if str(name) not in known:
        near = difflib.get_close_matches(str(name)[:100], known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "ndstack zoo lists those that there are"
        raise NdstackError(f"there is no {str(name)[:100]!r}; {hint}")
    return HERE / str(name).removeprefix(PREFIX)
