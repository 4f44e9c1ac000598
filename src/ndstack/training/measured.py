"""What the results of all tasks have in common: a table, plain data, and a number for each length."""

from collections.abc import Sequence
from typing import Protocol

Json = dict[str, object]
Cells = Sequence[Sequence[object]]
"""The rows of a table, the names of its columns first."""


class Measured(Protocol):
    """The results of a model on a set of strings."""

    @property
    def split(self) -> str:
        """The set of strings."""

    @property
    def note(self) -> str:
        """What the numbers of the table mean."""

    @property
    def shown(self) -> str:
        """The name of the number by length."""

    def values_by_length(self) -> dict[int, float]:
        """Return a number for each length."""

    def as_json(self) -> Json:
        """Return the results as plain data."""

    def table(self) -> Cells:
        """Return a table of the results."""
