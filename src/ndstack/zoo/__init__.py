"""Small networks that have learned their languages, by name: `zoo:unmarked-reversal/rns-2-3`.

Each of them is a run folder in this package, with its configuration, parameters, metrics, and row of the
tables of results. Its name can be used in place of a run folder.
"""

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
    """Return the names of all networks: `zoo:LANGUAGE/MODEL`."""
    return [f"{PREFIX}{path.parent.relative_to(HERE).as_posix()}" for path in sorted(HERE.glob(f"*/*/{ROW}"))]


def is_zoo(name: str | Path) -> bool:
    """Return whether this is the name of a network of the zoo."""
    return str(name).startswith(PREFIX)


def entry(language: str, model: str) -> str:
    """Return the name of the network of a language and a model."""
    return f"{PREFIX}{re.sub(r'[^a-z0-9+-]+', '', language.replace('(', '-'))}/{model}"


def resolve(name: str | Path) -> Path:
    """Return the folder of a network of the zoo; any other name is a folder itself."""
    if not is_zoo(name):
        return Path(name)
    known = names()
    if str(name) not in known:
        near = difflib.get_close_matches(str(name)[:100], known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "`ndstack zoo` lists all networks"
        raise NdstackError(f"there is no network {str(name)[:100]!r} in the zoo; {hint}")
    return HERE / str(name).removeprefix(PREFIX)
