"""An experiment as data: models, languages, a search, restarts, and the figures and tables of its results.

The format of the TOML files in `dissertation/`, and of those of users:

    name = "mine"
    title = "Two models on two languages"
    languages = ["dyck", "marked-reversal"]
    restarts = 3
    claims = ["C3", "C4"]                 # optional: no run starts that none of these claims needs

    [[models]]
    label = "Sup."
    names = ["sup-2", "sup-20"]           # the best of these is searched for
    by_language.dyck = ["sup-2"]          # on this language, among these

    [search]                              # a list is a grid; from low to high, values are log-uniform
    "training.learning_rate" = [0.01, 0.001]
    "training.clip" = { low = 1, high = 10 }

    [settings.training]                   # settings of all runs, as in config.json
    max_epochs = 50

    [until]                               # a group (label and language) ends when a run is this good
    difference = 0.05

    [extend]                              # runs that still improve at their limit get more epochs
    epochs = 20
    times = 3

    [[outputs]]
    label = "figure 1"
    kind = "curves"
    select = "best"

    [scales.smoke]                        # the same experiment with other values
    restarts = 1
    settings.data.train = 20
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

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
from ndstack.settings.reading import Table, merge, read_toml
from ndstack.training.material import check_language

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
ClaimName = Annotated[str, Field(pattern=r"^C[0-9]+$")]
Selection = Literal["best", "setting", "all"]
"""The runs that represent a model on a language: the run with the lowest validation cross-entropy difference,
the runs of the setting whose mean is lowest, or all runs."""
Order = Literal["listed", "shuffled"]
"""The order in which the settings of a grid are tried in each restart: as in the file, or shuffled with the
experiment's seed for every group. In both cases, a restart covers the whole grid before the next one."""
Statistic = Literal["mean", "deviation", "best"]
Kind = Literal[
    "curves",
    "accuracy",
    "generalization",
    "capacity",
    "times",
    "perplexity",
    "circuits",
    "scatter",
    "evolution",
    "pca",
    "heatmaps",
]
Printed = float | int | str | None
PAPER = "paper"


class SpecTable(BaseModel):
    """A table of a specification, in which unknown names and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LogUniform(SpecTable):
    """A random number whose logarithm is uniformly distributed."""

    low: PositiveFloat
    high: PositiveFloat

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g} and high is {self.high:g}, expected low to be the smaller")
        return self


Choices = LogUniform | Annotated[list[object], Field(min_length=1)]


class ModelSpec(SpecTable):
    """A line of a figure or row of a table: a model in one size, or in several among which is searched."""

    label: str
    names: list[str] = []
    by_language: dict[str, list[str]] = {}
    """The names for languages on which they differ."""
    settings: Table = {}

    def on(self, language: str) -> list[str]:
        """Return the names of the models that are tried on a language."""
        return self.by_language.get(language.partition("(")[0], self.names)


class Output(SpecTable):
    """A figure or table."""

    label: Name
    """The name of the figure or table, such as figure-6.1."""
    kind: Kind
    title: str = ""
    select: Selection = "best"
    statistic: Statistic = "mean"
    """The statistic that a capacity figure shows."""
    languages: list[str] = []
    """The languages that are shown; by default, all."""
    models: list[str] = []
    """The labels of the models that are shown; by default, all."""
    columns: list[str] = []
    printed: dict[str, list[Printed]] = {}
    """The row of numbers in the dissertation for each label."""
    note: str = ""


class Scale(SpecTable):
    """The settings that differ at a scale."""

    about: str = ""
    restarts: PositiveInt | None = None
    search: dict[str, Choices] | None = None
    names: dict[str, list[str]] = {}
    """The names of models by label."""
    alphabet_sizes: list[PositiveInt] | None = None
    settings: Table = {}


class Until(SpecTable):
    """The largest validation cross-entropy difference of a complete run with which its group succeeds."""

    difference: PositiveFloat
    """The difference to the lower bound, in nats per symbol."""


class Extend(SpecTable):
    """The rule by which runs that still improve when they reach their limit get more epochs."""

    epochs: PositiveInt
    """The number of epochs that are added each time."""
    times: PositiveInt = 1
    """How often epochs are added at most."""
    within: PositiveInt = 3
    """A run still improves if its best epoch is among this number of last ones."""


class Budget(SpecTable):
    """What the runs of a group may spend together; once it is spent, no further run starts."""

    epochs: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    """The number of seconds of training."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epochs is None) == (self.seconds is None):
            raise ValueError("expected either epochs or seconds")
        return self


class Rules(SpecTable):
    """The number and the length of the runs of a group, which are all runs of one label on one language.

    A run that has started is always completed, because its early values say little about its end.
    """

    until: Until | None = None
    """After a success, no further run of the group starts; if not given, all runs are made."""
    extend: Extend | None = None
    budget: Budget | None = None
    claims: list[ClaimName] = []
    """The claims for which the runs are made. A run starts only if one of them is undecided and needs it; if
    none are given, all runs are made."""


class Experiment(Rules):
    """Trials, and the figures and tables of their results."""

    name: Name
    title: str = ""
    section: str = ""
    about: str = ""
    models: Annotated[list[ModelSpec], Field(min_length=1)]
    languages: Annotated[list[str], Field(min_length=1)]
    text: bool = False
    """Whether runs are on a corpus, whose name is then in `languages`."""
    alphabet_sizes: list[PositiveInt] = []
    """The numbers k of symbols with which each language is tried."""
    restarts: PositiveInt = 1
    search: dict[str, Choices] = {}
    order: Order = "listed"
    seed: NonNegativeInt = 0
    settings: Table = {}
    outputs: list[Output] = []
    scales: dict[str, Scale] = {}

    @classmethod
    def of(cls, values: object, source: str) -> Self:
        """Return the experiment in plain data; an error names what is wrong in one line."""
        try:
            found = cls.model_validate(values)
        except ValidationError as error:
            raise NdstackError(f"{source}: {first_problem(error)}") from None
        found._check_names(source)
        return found

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the experiment in a TOML file."""
        return cls.of(read_toml(path), str(path))

    def at(self, scale: str) -> Experiment:
        """Return the same experiment at a scale; `paper` is the full one unless the file redefines it."""
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
        changes: Table = {"models": specs, "settings": merge(self.settings, chosen.settings)}
        for field in ("restarts", "search", "alphabet_sizes"):
            value = getattr(chosen, field)
            if value is not None:
                changes[field] = value
        return self.model_copy(update=changes)

    def scale_names(self) -> list[str]:
        """Return the names of all scales, that of the full one last."""
        return [*(name for name in self.scales if name != PAPER), PAPER]

    def all_languages(self) -> list[str]:
        """Return the languages, with each alphabet size if there are any."""
        if not self.alphabet_sizes:
            return self.languages
        return [f"{language}(k={k})" for language in self.languages for k in self.alphabet_sizes]

    def shown_languages(self, output: Output) -> list[str]:
        """Return the languages of a figure or table."""
        return output.languages or self.languages

    def shown_models(self, output: Output) -> list[str]:
        """Return the labels of the models of a figure or table."""
        return output.models or [model.label for model in self.models]

    def _check_names(self, source: str) -> None:
        """Raise an error if a model, language or label does not exist."""
        labels = [model.label for model in self.models]
        if len(set(labels)) < len(labels):
            raise NdstackError(f"{source}: two models have the same label, expected different ones")
        for model in self.models:
            for name in [*model.names, *(one for names in model.by_language.values() for one in names)]:
                networks.parse(name)
            for language in self.languages:
                if not model.on(language):
                    raise NdstackError(f"{source}: {model.label} has no names for {language}")
        if self.text and self.until is not None:
            raise NdstackError(f"{source}: until.difference given for an experiment on text; remove it")
        if not self.text:
            for language in self.all_languages():
                check_language(language, self.settings.get("task", "model"))
        for output in self.outputs:
            for label in {*output.models} - {*labels}:
                raise NdstackError(f"{source}: {output.label} shows {label!r}, which is not a model's label")
            for language in {*output.languages} - {*self.languages}:
                raise NdstackError(
                    f"{source}: {output.label} shows {language!r}, which is not a language here"
                )
