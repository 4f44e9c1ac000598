"""Results as two tables: `runs.csv` has a row for each run, `curves.csv` a row for each epoch.

A third file, `views.json`, keeps what stacks do inside the few networks that figures 6.2, 9.4 and 9.5 show.

They are what figures, tables, claims and the zoo are made of; where runs were trained does not matter once
they are gathered (`ndstack gather`). Differences are to the lower bound, in nats per symbol.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from ndstack import files
from ndstack.errors import NdstackError, first_problem
from ndstack.settings.base import Settings
from ndstack.settings.run import RunConfig

RUNS, CURVES, VIEWS = "runs.csv", "curves.csv", "views.json"
Ended = Literal["converged", "epoch limit", "interrupted"]
"""Converged: no improvement for as many epochs as the settings say. Interrupted: it is not complete."""

Views = dict[Any, Any]
"""Of one run, by name: see `ndstack.experiments.stack_views`."""

_Row = TypeVar("_Row", bound="_TableRow")


class _TableRow(Settings):
    """A row of a CSV file: an empty cell is None, tables within a row are JSON."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: _parse(cls, str(name), value) for name, value in values.items()}

    def cells(self) -> list[Any]:
        """As they are written."""
        return [_write(value) for value in self.model_dump().values()]


class Record(_TableRow):
    """One run."""

    id: str
    """Model, language and a checksum of the settings: a run that is repeated has the same one."""
    experiment: str = ""
    label: str = ""
    language: str
    model: str
    seed: int
    learning_rate: float
    stages: str = ""
    """LENGTHS@EPOCHS/PATIENCE/RATE of each stage of training; empty if there is but one."""
    bottom_fix: bool | None = None
    """Of nondeterministic stacks."""
    config: dict[str, Any]
    """All settings that are not defaults."""
    parameters: int | None = None
    epochs: int
    """Of all stages."""
    best_epoch: int | None = None
    waited: int = 0
    """Epochs since the best one."""
    cross_entropy: float | None = None
    """The lowest on the validation set, in nats per symbol."""
    difference: float | None = None
    updates: int | None = None
    ended: Ended
    seconds: float = 0.0
    threads: int | None = None
    version: str = ""
    commit: str = ""
    cpu: str = ""
    simd: str = ""
    date: str = ""
    test_difference: float | None = None
    test_by_length: dict[int, float] = Field(default_factory=dict)
    perplexity: float | None = None
    test_perplexity: float | None = None
    sg_score: float | None = None
    circuits: dict[str, float] = Field(default_factory=dict)
    stack_measures: dict[str, float] = Field(default_factory=dict)
    """What was measured of the stack itself: see `ndstack.experiments.stack_views`."""
    processor_seconds: float | None = None
    """Which other programs on the machine do not lengthen; of all epochs, if all were measured."""

    @property
    def complete(self) -> bool:
        """Whether it ended by its own rules."""
        return self.ended != "interrupted"

    @property
    def score(self) -> float:
        """What runs are selected by, lower is better."""
        value = self.cross_entropy if self.difference is None else self.difference
        if value is None:
            raise NdstackError(f"{self.id} has no complete epoch")
        return value

    @property
    def base_language(self) -> str:
        """Without an alphabet size."""
        return self.language.partition("(")[0]

    @cached_property
    def settings(self) -> RunConfig:
        """The whole configuration."""
        return RunConfig.of(self.config, self.id)

    @property
    def is_text(self) -> bool:
        """Whether it was trained on a corpus."""
        return "corpus" in self.config


class Epoch(_TableRow):
    """One epoch of a run."""

    run: str
    stage: int = 1
    epoch: int
    cross_entropy: float
    difference: float | None = None
    train: float | None = None
    learning_rate: float | None = None
    seconds: float | None = None
    processor_seconds: float | None = None
    """Which other programs on the machine do not lengthen."""


@dataclasses.dataclass(frozen=True)
class Tables:
    """Runs by identifier, and their epochs."""

    runs: dict[str, Record]
    curves: dict[str, tuple[Epoch, ...]]
    views: dict[str, Views] = dataclasses.field(default_factory=dict)
    """Of stacks, for the few runs that figures 6.2, 9.4 and 9.5 are about."""

    @classmethod
    def empty(cls) -> Self:
        """Without runs."""
        return cls({}, {})

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """The tables in a folder."""
        folder = Path(folder)
        if not is_tables(folder):
            raise NdstackError(f"{folder} has no {RUNS}; expected the tables that ndstack gather makes")
        runs = {one.id: one for one in _read(folder / RUNS, Record)}
        curves: dict[str, list[Epoch]] = {}
        for epoch in _read(folder / CURVES, Epoch):
            curves.setdefault(epoch.run, []).append(epoch)
        views = files.read_json(folder / VIEWS) if (folder / VIEWS).exists() else {}
        if not isinstance(views, dict):
            raise NdstackError(f"{folder / VIEWS} is damaged: expected a JSON object")
        return cls(runs, {name: tuple(curves.get(name, ())) for name in runs}, views)

    def write(self, folder: str | Path) -> None:
        """Replace the tables in a folder, each in one move."""
        folder = Path(folder)
        ordered = sorted(self.runs.values(), key=lambda one: (one.language, one.model, one.id))
        epochs = [epoch for one in ordered for epoch in self.curves.get(one.id, ())]
        if self.views:
            lines = [f"{json.dumps(name)}: {json.dumps(self.views[name])}" for name in sorted(self.views)]
            files.replace(folder / VIEWS, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
        files.replace(folder / CURVES, _csv(Epoch, epochs))
        files.replace(folder / RUNS, _csv(Record, ordered))

    def with_run(self, record: Record, curve: Sequence[Epoch], views: Views | None = None) -> Tables:
        """With the rows of one more run, which replace those that the run had."""
        kept = {**self.views, record.id: views} if views else self.views
        return Tables({**self.runs, record.id: record}, {**self.curves, record.id: tuple(curve)}, kept)


def is_tables(folder: Path) -> bool:
    """Whether a folder has tables in it."""
    return (folder / RUNS).is_file()


def rounded(value: Any, digits: int = 8) -> Any:
    """Numbers with as many digits as a table needs; tables within tables included."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(one, digits) for key, one in value.items()}
    return value


def _csv(kind: type[_TableRow], rows: Iterable[_TableRow]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(kind.model_fields)
    writer.writerows(row.cells() for row in rows)
    return buffer.getvalue().encode()


def _read(path: Path, kind: type[_Row]) -> list[_Row]:
    found = []
    for number, values in enumerate(csv.DictReader(io.StringIO(files.read_text(path))), 2):
        if None in values or None in values.values():
            raise NdstackError(f"{path}, line {number}: expected {len(kind.model_fields)} cells")
        try:
            found.append(kind.model_validate(values))
        except ValidationError as error:
            raise NdstackError(f"{path}, line {number}: {first_problem(error)}") from None
    return found


def _write(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def _parse(kind: type[_TableRow], name: str, value: Any) -> Any:
    """The value of a cell."""
    field = kind.model_fields.get(name)
    if field is None or not isinstance(value, str):
        return value
    if not value:
        return value if field.is_required() else field.get_default(call_default_factory=True)
    if "dict" in str(field.annotation):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"{name} is not JSON") from None
    return value
