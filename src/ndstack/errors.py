"""The errors that a user can cause. Their text is one line: what was given, what was expected, what to do."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "AutomatonError",
    "BusyError",
    "DatasetError",
    "DivergenceError",
    "GrammarError",
    "LanguageError",
    "NdstackError",
    "TrainingError",
]


class NdstackError(ValueError):
    """Wrong input; the command line prints its text and exits with code 2."""


class GrammarError(NdstackError):
    """A grammar, or a rule of one, that cannot be used."""


class AutomatonError(NdstackError):
    """An automaton, or a transition of one, that does not have the required form."""


class LanguageError(NdstackError):
    """An unknown language, a string outside it, or a length at which it has no strings."""


class DatasetError(NdstackError):
    """A data set folder that is missing, damaged or not what its header says."""


class DivergenceError(NdstackError):
    """A sum over infinitely many derivations or runs that has no finite value."""


class TrainingError(NdstackError):
    """A training run that cannot be started, resumed or read."""


class BusyError(NdstackError):
    """A folder that another process is writing to."""


def warn(message: str) -> None:
    """Print one line to standard error about input that is valid but probably not intended."""
    print(f"ndstack: warning: {message}", file=sys.stderr)


def check_size(name: str, value: object, least: int = 1) -> int:
    """Return a size as an int; raise an error unless it is a whole number of at least `least`."""
    number = None
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # an array that is not a single whole number
            number = operator.index(value)
    if number is None:
        raise NdstackError(f"{name} is {value!r}, expected a whole number, {least} or more")
    if number < least:
        raise NdstackError(f"{name} is {number}, expected {least} or more")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return a flag; raise an error unless it is True or False."""
    if not isinstance(value, bool):
        raise NdstackError(f"{name} is {value!r}, expected True or False")
    return value


def refuse(unsupported: Mapping[str, object], by: type, instead: Mapping[str, str]) -> None:
    """Raise an error if there are arguments that a class does not take.

    Args:
        unsupported: what was given, by name.
        by: the class.
        instead: what to do instead, by name, where that is known.
    """
    for name, value in unsupported.items():
        hint = instead.get(name, f"see help(ndstack.nn.{by.__name__})")
        text = repr(value)
        given = f"{name}={text}" if len(text) < 60 and "\n" not in text else name
        raise NdstackError(f"{given} given, which {by.__name__} does not take; {hint}")


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a validation error in one line, with its place in the data."""
    detail = error.errors(include_url=False)[0]
    place, given = ".".join(str(part) for part in detail["loc"]), detail["input"]
    message = "there is no such name" if detail["type"] == "extra_forbidden" else detail["msg"]
    if message.startswith("Input should be") and isinstance(given, str | int | float):
        message += f"; {repr(given)[:60]} given"
    return " ".join(f"{place}: {message}".removeprefix(": ").split())


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means lack of memory, which torch reports as a `RuntimeError`."""
    words = ("can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(some in str(error) for some in words)
    )
