"""Transductions by name: `reverse-string`, `question-formation`, ..."""

import difflib
from collections.abc import Callable

from ndstack.errors import LanguageError
from ndstack.transductions.chomsky_hierarchy import TASKS
from ndstack.transductions.english import question_formation, tense_reinflection
from ndstack.transductions.transduction import Transduction

_ENGLISH: dict[str, Callable[[str], Transduction]] = {
    "question-formation": question_formation,
    "tense-reinflection": tense_reinflection,
}
DESCRIPTIONS: dict[str, str] = {
    **{name: f"{task.description} ({task.level})" for name, task in TASKS.items()},
    "question-formation": "English sentences to questions, or copied",
    "tense-reinflection": "English sentences from the past to the present tense, or copied",
}
"""A description of each transduction by name."""
NAMES = tuple(DESCRIPTIONS)
"""The names of the transductions, for `get`."""


def get(name: str) -> Transduction:
    """Return the transduction called `name`."""
    if name in TASKS:
        return TASKS[name].make(name)
    if name in _ENGLISH:
        return _ENGLISH[name](name)
    near = difflib.get_close_matches(name.strip().lower(), NAMES, n=1, cutoff=0.5)
    if near:
        raise LanguageError(f"there is no transduction called {name!r}; did you mean {near[0]}?")
    raise LanguageError(f"there is no transduction called {name!r}; there are {', '.join(NAMES)}")
