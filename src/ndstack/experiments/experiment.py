"""An experiment as data: models, languages, a search, restarts, and what is made of the results.

The format of the TOML files in `dissertation/` and of a user's own sweep:

    name = "mine"
    title = "Two models on two languages"
    languages = ["dyck", "marked-reversal"]
    restarts = 3

    [[models]]
    label = "Sup."
    names = ["sup-2", "sup-20"]           # all of them are searched
    by_language.dyck = ["sup-2"]          # except here

    [search]                              # a list is a grid; low and high: log-uniform, drawn for each run
    "training.learning_rate" = [0.01, 0.001]
    "training.clip" = { low = 1, high = 10 }

    [settings.training]                   # of all runs, as in config.json
    max_epochs = 50

    [until]                               # end a group (label and language) when a run is as good as this
    difference = 0.05

    [extend]                              # more epochs for runs that still improve at their limit
    epochs = 20
    times = 3

    [[outputs]]
    label = "figure 1"
    kind = "curves"
    select = "best"

    [scales.smoke]                        # the same with other values
    restarts = 1
    settings.data.train = 20
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from ndstack.errors import NdstackError, first_problem
from ndstack.nn import models as networks
from ndstack.settings.reading import merge, read_toml
from ndstack.training.material import check_language

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Selection = Literal["best", "setting", "all"]
"""Which runs of a model on a language stand for it: the run with the lowest validation cross-entropy
difference; the runs of the setting whose mean is lowest; all runs."""
Order = Literal["listed", "shuffled"]
"""In which order the settings of a grid are tried in each restart: as in the file, or in an order drawn from
the experiment's seed for every group. Either way each restart covers the grid before the next begins."""
Statistic = Literal["mean", "deviation", "best"]
Kind = Literal[
    "curves", "capacity", "times", "perplexity", "circuits", "scatter", "evolution", "pca", "heatmaps"
]
Printed = float | int | str | None
Values = dict[str, Any]
"""Plain data, as in a TOML or JSON file."""
PAPER = "paper"


class SpecTable(BaseModel):
    """Unknown names and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LogUniform(SpecTable):
    """A random number whose logarithm is uniform."""

    low: PositiveFloat
    high: PositiveFloat

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g} and high is {self.high:g}, expected low to be the smaller")
        return self


Choices = LogUniform | Annotated[list[object], Field(min_length=1)]


class ModelSpec(SpecTable):
    """One line of a figure, or row of a table: a model, in one size or in several that are searched."""

    label: str
    names: list[str] = []
    by_language: dict[str, list[str]] = {}
    """For languages on which the sizes are others."""
    settings: Values = {}

    def on(self, language: str) -> list[str]:
        """The names of the models that are tried on a language."""
        return self.by_language.get(language.partition("(")[0], self.names)


class Output(SpecTable):
    """A figure or table."""

    label: Name
    """Such as figure-6.1."""
    kind: Kind
    title: str = ""
    select: Selection = "best"
    statistic: Statistic = "mean"
    """Of what a capacity figure shows."""
    languages: list[str] = []
    """Those shown; all if none is named."""
    models: list[str] = []
    """Labels of those shown; all if none is named."""
    columns: list[str] = []
    printed: dict[str, list[Printed]] = {}
    """What the dissertation prints: for each label a row of numbers."""
    note: str = ""


class Scale(SpecTable):
    """What is different at a scale; what is not given stays as it is."""

    about: str = ""
    restarts: PositiveInt | None = None
    search: dict[str, Choices] | None = None
    names: dict[str, list[str]] = {}
    """Models by label, in these sizes only."""
    alphabet_sizes: list[PositiveInt] | None = None
    settings: Values = {}


class Until(SpecTable):
    """Success of a group: a complete run whose validation cross-entropy difference is no more than this."""

    difference: PositiveFloat
    """In nats per symbol."""


class Extend(SpecTable):
    """More epochs for runs that still improve when they reach their limit."""

    epochs: PositiveInt
    """So many more at a time."""
    times: PositiveInt = 1
    """At most so often."""
    within: PositiveInt = 3
    """If the best epoch is among so many last ones."""


class Budget(SpecTable):
    """What the runs of a group may spend together: no further one begins once it is spent."""

    epochs: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    """Of training."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epochs is None) == (self.seconds is None):
            raise ValueError("expected either epochs or seconds")
        return self


class Rules(SpecTable):
    """How many runs a group gets, which are all runs of one label on one language, and how long they are.

    A run that has begun is always completed: its early values say little about its end.
    """

    until: Until | None = None
    """After a success no further run of the group begins; all are run if not given."""
    extend: Extend | None = None
    budget: Budget | None = None


class Experiment(Rules):
    """Trials and what is made of them."""

    name: Name
    title: str = ""
    section: str = ""
    about: str = ""
    models: Annotated[list[ModelSpec], Field(min_length=1)]
    languages: Annotated[list[str], Field(min_length=1)]
    text: bool = False
    """Whether runs are on a corpus, of which `languages` is only the name."""
    alphabet_sizes: list[PositiveInt] = []
    """Each language is taken with each of these k."""
    restarts: PositiveInt = 1
    search: dict[str, Choices] = {}
    order: Order = "listed"
    seed: NonNegativeInt = 0
    settings: Values = {}
    outputs: list[Output] = []
    scales: dict[str, Scale] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str) -> Self:
        """Check plain data; what is wrong is said in one line."""
        try:
            found = cls.model_validate(values)
        except ValidationError as error:
            raise NdstackError(f"{source}: {first_problem(error)}") from None
        found._check_names(source)
        return found

    @classmethod
    def read(cls, path: Path) -> Self:
        """The experiment of a TOML file."""
        return cls.of(read_toml(path), str(path))

    def at(self, scale: str) -> Experiment:
        """The same experiment at a scale; `paper` is as written unless the file says otherwise."""
        chosen = self.scales.get(scale)
        if chosen is None:
            if scale == PAPER:
                return self
            known = ", ".join(self.scale_names())
            raise NdstackError(f"{self.name} has no scale {scale!r}; expected one of: {known}")
        labels = {model.label for model in self.models}
        for label in chosen.names.keys() - labels:
            raise NdstackError(f"{self.name}, scale {scale}: there is no model with the label {label!r}")
        specs = [
            model.model_copy(update={"names": chosen.names[model.label], "by_language": {}})
            if model.label in chosen.names
            else model
            for model in self.models
        ]
        changes: Values = {"models": specs, "settings": merge(self.settings, chosen.settings)}
        for field in ("restarts", "search", "alphabet_sizes"):
            value = getattr(chosen, field)
            if value is not None:
                changes[field] = value
        return self.model_copy(update=changes)

    def scale_names(self) -> list[str]:
        """All scales, the full one last."""
        return [*(name for name in self.scales if name != PAPER), PAPER]

    def all_languages(self) -> list[str]:
        """With alphabet sizes, if there are any."""
        if not self.alphabet_sizes:
            return self.languages
        return [f"{language}(k={k})" for language in self.languages for k in self.alphabet_sizes]

    def shown_languages(self, output: Output) -> list[str]:
        """The panels of a figure."""
        return output.languages or self.languages

    def shown_models(self, output: Output) -> list[str]:
        """The lines of a figure, or the rows of a table."""
        return output.models or [model.label for model in self.models]

    def _check_names(self, source: str) -> None:
        """Models, languages and labels that do not exist are noticed before anything runs."""
        labels = [model.label for model in self.models]
        if len(set(labels)) < len(labels):
            raise NdstackError(f"{source}: two models with the same label, expected different ones")
        for model in self.models:
            for name in [*model.names, *(one for names in model.by_language.values() for one in names)]:
                networks.parse(name)
            for language in self.languages:
                if not model.on(language):
                    raise NdstackError(f"{source}: {model.label} has no names for {language}")
        if self.text and self.until is not None:
            raise NdstackError(f"{source}: until.difference is for formal languages, but this is about text")
        if not self.text:
            for language in self.all_languages():
                check_language(language)
        for output in self.outputs:
            for label in {*output.models} - {*labels}:
                raise NdstackError(f"{source}: {output.label} shows {label!r}, which is not a model's label")
            for language in {*output.languages} - {*self.languages}:
                raise NdstackError(
                    f"{source}: {output.label} shows {language!r}, which is not a language here"
                )
