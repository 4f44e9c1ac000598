"""Test suites in SyntaxGym's JSON format: items in several conditions each, and predictions about them."""

import functools
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.text.formulas import Operation, parse_formula, regions

Metric = Literal["sum", "mean", "median", "range", "max", "min"]


class SuiteError(NdstackError):
    """A suite that cannot be read; its text names the file and the item."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RegionText(_Part):
    """A part of a sentence."""

    region_number: int
    content: str

    @property
    def words(self) -> list[str]:
        """The words of the region, separated by spaces."""
        return self.content.split()


class Condition(_Part):
    """A sentence: an item in one condition."""

    condition_name: str
    regions: tuple[RegionText, ...] = Field(min_length=1)

    @property
    def words(self) -> list[str]:
        """The words of all regions, in order."""
        return [word for region in self.regions for word in region.words]


class Item(_Part):
    """Sentences that differ only in what is tested."""

    item_number: int
    conditions: tuple[Condition, ...] = Field(min_length=1)


class Prediction(_Part):
    """A formula that holds on every item for a model that has learned the syntax."""

    type: Literal["formula"] = "formula"
    formula: str

    @functools.cached_property
    def parsed(self) -> Operation:
        """The formula as a tree."""
        return parse_formula(self.formula)


class Meta(_Part):
    """The name of a suite, and how the surprisals of the words of a region are combined."""

    name: str
    metric: Metric = "sum"
    circuit: str | None = None
    """The kind of phenomenon that is tested, for suites that are not in `CIRCUITS`."""


class Suite(_Part):
    """A test suite, which is one file."""

    meta: Meta
    predictions: tuple[Prediction, ...] = Field(min_length=1)
    items: tuple[Item, ...] = Field(min_length=1)

    @property
    def sentences(self) -> list[list[str]]:
        """All sentences: the conditions of the first item, of the second, and so on."""
        return [condition.words for item in self.items for condition in item.conditions]


def read_suite(path: Path) -> Suite:
    """Read a suite; errors name the file and the item."""
    content = files.read_json(path, SuiteError)
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SuiteError(f"{_place(path, content, first['loc'])}: {first['msg']}") from None
    for number, prediction in enumerate(suite.predictions, 1):
        try:
            wanted = set(regions(prediction.parsed))
        except NdstackError as error:
            raise SuiteError(f"{path}, prediction {number}: {error}") from None
        for item in suite.items:
            have = {
                (name, condition.condition_name)
                for condition in item.conditions
                for name in (None, *(region.region_number for region in condition.regions))
            }
            for region in wanted:
                if (region.number, region.condition) not in have:
                    shown = "*" if region.number is None else region.number
                    raise SuiteError(
                        f"{path}, item {item.item_number}: has no region {shown} in the condition "
                        f"{region.condition!r}, which prediction {number} refers to"
                    )
    return suite


def find_suites(paths: list[Path]) -> list[Path]:
    """Return the given suite files, and all `*.json` files of the given folders."""
    found = []
    for path in paths:
        found += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        raise SuiteError(f"no suites in {', '.join(map(str, paths))}; expected *.json files")
    return found


def _place(path: Path, content: object, location: tuple[int | str, ...]) -> str:
    """Return a readable description of a location in a file."""
    shown = [str(path)]
    rest = list(location)
    if len(rest) > 1 and rest[0] == "items" and isinstance(rest[1], int):
        assert isinstance(content, dict)
        item = content["items"][rest[1]]
        number = item.get("item_number") if isinstance(item, dict) else None
        shown.append(f"item {number if isinstance(number, int) else f'at place {rest[1] + 1}'}")
        rest = rest[2:]
    elif len(rest) > 1 and rest[0] == "predictions" and isinstance(rest[1], int):
        shown.append(f"prediction {rest[1] + 1}")
        rest = rest[2:]
    if rest:
        shown.append(".".join(str(part + 1 if isinstance(part, int) else part) for part in rest))
    return ", ".join(shown)
