"""Results as two tables: `runs.csv` has a row for each run, `curves.csv` a row for each epoch.

A third file, `views.json`, keeps what stacks do in the few networks that figures 6.2, 9.4 and 9.5 show.

Figures, tables, claims and the zoo are made from these files, so that runs are not needed once they have been
gathered (`ndstack gather`). Differences are to the lower bound, in nats per symbol.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from ndstack import files
from ndstack.errors import NdstackError, first_problem
from ndstack.grammars.graphs import grouped
from ndstack.settings.base import Settings
from ndstack.settings.reading import Table
from ndstack.settings.run import RunConfig

RUNS, CURVES, VIEWS = "runs.csv", "curves.csv", "views.json"
CLAIMS = "claims.toml"
"""The file beside the tables in which there may be claims other than the dissertation's."""
Ended = Literal["converged", "epoch limit", "interrupted"]
"""Why a run ended. It has converged if it did not improve for as many epochs as its settings say; an
interrupted run is not complete."""
ViewName = Literal["evolution", "readings", "heat_map"]
Matrix = list[list[float]]


class EvolutionView(Settings):
    """The share of the correct action at each position of a string, after each epoch (figure 6.2)."""

    epochs: list[int]
    values: Matrix


class ReadingsView(Settings):
    """Principal components of stack readings, labelled with the next symbol (figure 9.4)."""

    points: Matrix
    variance: list[float]
    labels: list[str]
    purity: float
    """The share of readings that are closest to the mean of those of their own symbol."""


class HeatMapView(Settings):
    """Stack readings over time while a network reads a string (figure 9.5)."""

    word: list[str]
    names: list[str]
    values: Matrix


class Views(Settings):
    """The views of one run that were kept; see `ndstack.experiments.stack_views`."""

    evolution: EvolutionView | None = None
    readings: ReadingsView | None = None
    heat_map: HeatMapView | None = None


def _from_json(value: object) -> object:
    """Return the value of a cell that contains JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError("expected JSON") from None


Number = Annotated[float, AfterValidator(lambda value: float(f"{value:.8g}"))]
ShortNumber = Annotated[float, AfterValidator(lambda value: float(f"{value:.6g}"))]
_JSON = BeforeValidator(_from_json)
_Row = TypeVar("_Row", bound="_TableRow")


class _TableRow(Settings):
    """A row of a CSV file, in which an empty cell stands for the default, and dictionaries are JSON."""

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_cells(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value != ""}

    def cells(self) -> list[object]:
        """Return the cells of the row."""
        return [_cell(value) for value in self.model_dump().values()]


def _cell(value: object) -> object:
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    return str(value).lower() if isinstance(value, bool) else value


class Record(_TableRow):
    """One run."""

    id: str
    """Its model, its language and a checksum of its settings; a repeated run has the same identifier."""
    experiment: str = ""
    label: str = ""
    language: str = ""
    model: str = ""
    seed: int
    learning_rate: Number
    stages: str = ""
    """LENGTHS@EPOCHS/PATIENCE/RATE of each stage of training; "" if there is only one."""
    bottom_fix: bool | None = None
    """Whether a nondeterministic stack has the bottom fix; None for other stacks."""
    config: Annotated[Table, _JSON]
    """All settings that are not defaults."""
    parameters: int | None = None
    epochs: int
    """The number of epochs of all stages."""
    best_epoch: int | None = None
    waited: int = 0
    """The number of epochs since the best one."""
    cross_entropy: Number | None = None
    """The lowest cross-entropy on the validation set, in nats per symbol."""
    difference: Number | None = None
    updates: int | None = None
    ended: Ended
    seconds: float = 0.0
    threads: int | None = None
    version: str = ""
    commit: str = ""
    cpu: str = ""
    simd: str = ""
    date: str = ""
    test_difference: Number | None = None
    test_by_length: Annotated[dict[int, ShortNumber], _JSON] = Field(default_factory=dict)
    perplexity: Number | None = None
    test_perplexity: Number | None = None
    sg_score: Number | None = None
    circuits: Annotated[dict[str, Number], _JSON] = Field(default_factory=dict)
    stack_measures: Annotated[dict[str, float], _JSON] = Field(default_factory=dict)
    """Numbers about the stack itself; see `ndstack.experiments.stack_views`."""
    processor_seconds: float | None = None
    """The processor time, which does not depend on other programs, if it was measured in all epochs."""
    accuracy: Number | None = None
    """The accuracy of the best epoch on the validation set, for tasks that have one."""
    test_accuracy: Number | None = None
    """The accuracy on the test set; of transductions, the mean over the lengths of inputs."""
    generalization: Annotated[dict[str, Number], _JSON] = Field(default_factory=dict)
    """The shares of outputs by the rule that they follow, for English transductions."""
    accuracy_by_length: Annotated[dict[int, ShortNumber], _JSON] = Field(default_factory=dict)
    """The accuracy on the test strings or inputs of each length, for tasks that have one."""
    accuracy_by_kind: Annotated[dict[str, ShortNumber], _JSON] = Field(default_factory=dict)
    """The accuracy of a recogniser on strings inside, strings some edits away, and random strings."""

    @property
    def complete(self) -> bool:
        """Whether the run ended by its own rules."""
        return self.ended != "interrupted"

    @property
    def score(self) -> float:
        """The number by which runs are selected; lower is better."""
        value = self.cross_entropy if self.difference is None else self.difference
        if value is None:
            raise NdstackError(f"{self.id} has no complete epoch")
        return value

    @property
    def base_language(self) -> str:
        """The language without an alphabet size."""
        return self.language.partition("(")[0]

    @cached_property
    def settings(self) -> RunConfig:
        """The whole configuration."""
        return RunConfig.of(self.config, self.id)

    @property
    def is_text(self) -> bool:
        """Whether the run was trained on a corpus."""
        return "corpus" in self.config


class Epoch(_TableRow):
    """One epoch of a run."""

    run: str = ""
    stage: int = 1
    epoch: int
    cross_entropy: ShortNumber
    difference: ShortNumber | None = None
    train: ShortNumber | None = None
    learning_rate: ShortNumber | None = None
    seconds: ShortNumber | None = None
    processor_seconds: ShortNumber | None = None
    """The processor time, which does not depend on other programs."""


@dataclasses.dataclass(frozen=True)
class Tables:
    """Runs by identifier, and their epochs."""

    runs: dict[str, Record]
    curves: dict[str, tuple[Epoch, ...]]
    views: dict[str, Views] = dataclasses.field(default_factory=dict)
    """The views of stacks, for the few runs that figures 6.2, 9.4 and 9.5 show."""

    @classmethod
    def empty(cls) -> Self:
        """Return tables without runs."""
        return cls({}, {})

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the tables in a folder."""
        folder = Path(folder)
        if not is_tables(folder):
            raise NdstackError(f"{folder} has no {RUNS}; expected the tables that ndstack gather makes")
        runs = {one.id: one for one in _read(folder / RUNS, Record)}
        curves = grouped(_read(folder / CURVES, Epoch), lambda epoch: epoch.run)
        views: dict[str, Views] = {}
        if (folder / VIEWS).exists():
            views = files.read_json_as(folder / VIEWS, dict[str, Views], "what ndstack gather writes")
        return cls(runs, {name: tuple(curves.get(name, ())) for name in runs}, views)

    def write(self, folder: str | Path) -> None:
        """Replace the tables in a folder, each atomically."""
        folder = Path(folder)
        ordered = sorted(self.runs.values(), key=lambda one: (one.language, one.model, one.id))
        epochs = [epoch for one in ordered for epoch in self.curves.get(one.id, ())]
        if self.views:
            views = {name: one.model_dump(exclude_none=True) for name, one in sorted(self.views.items())}
            lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in views.items()]
            files.replace(folder / VIEWS, "{\n" + ",\n".join(lines) + "\n}\n")
        files.replace(folder / CURVES, _csv(Epoch, epochs))
        files.replace(folder / RUNS, _csv(Record, ordered))

    def with_run(self, record: Record, curve: Sequence[Epoch], views: Views | None = None) -> Tables:
        """Return the tables with the rows of one more run, which replace earlier rows of the same run."""
        kept = self.views if views in (None, Views()) else {**self.views, record.id: views}
        return Tables({**self.runs, record.id: record}, {**self.curves, record.id: tuple(curve)}, kept)


def is_tables(folder: Path) -> bool:
    """Return whether a folder contains tables."""
    return (folder / RUNS).is_file()


def _csv(kind: type[_TableRow], rows: Iterable[_TableRow]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(kind.model_fields)
    writer.writerows(row.cells() for row in rows)
    return buffer.getvalue()


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
