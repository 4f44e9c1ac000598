"""What a run is, as plain data: `config.json`, a TOML file, or the flags of `ndstack train`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from ndstack.errors import TrainingError, first_problem
from ndstack.settings.base import Folder, Seed, Settings
from ndstack.settings.data import CorpusConfig, DataConfig
from ndstack.settings.model import ModelOptions
from ndstack.settings.reading import Values, merge
from ndstack.settings.recipes import take_recipe
from ndstack.settings.training import Stage, TrainingConfig


class RunConfig(Settings):
    """All of a run: the same language, data, model and training again from this file alone."""

    format: Literal["ndstack run 1"] = "ndstack run 1"
    """The format of this table."""
    language: str
    """The name of a formal language or of a registered task; of a run on text, no more than a name."""
    grammar: str | None = None
    """The rules of a language that has no name of its own."""
    model: str | None
    """A name of `ndstack.nn.models`; None for a network made in Python."""
    seed: Seed = 0
    """The seed of the data, the first parameters and, unless `training.seed` says otherwise, the training."""
    start_from: Folder | None = None
    """Another run, whose best parameters are the first ones of this run; if not given, they are drawn."""
    start_sha256: str | None = None
    """The checksum of the file with these parameters, filled in when a run starts."""
    data: DataConfig = DataConfig()
    """The strings of a formal language."""
    corpus: CorpusConfig | None = None
    """The text of a run on text."""
    options: ModelOptions = ModelOptions()
    """The options of the model."""
    training: TrainingConfig = TrainingConfig()
    """How the model is trained."""

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.training.stages and self.corpus is not None:
            raise ValueError("training.stages given for a run on text, expected for formal languages only")
        return self

    @classmethod
    def of(cls, values: Values, source: str = "the configuration") -> Self:
        """Check plain data; an error says in one line what is wrong where."""
        values = merge(*take_recipe(values, source))
        training = values.get("training", {})
        if isinstance(training, Mapping):
            values["training"] = {"seed": values.get("seed", 0), **training}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise TrainingError(f"{source}: {first_problem(error)}{_near(error)}") from None


def _near(error: ValidationError) -> str:
    """If a name is unknown, the one that may have been meant."""
    detail = error.errors()[0]
    if detail["type"] != "extra_forbidden":
        return ""
    *tables, name = detail["loc"]
    known: Any = RunConfig(language="", model=None, corpus=CorpusConfig(folder="")).model_dump()
    known["training"]["stages"] = [Stage(lengths=(0, 0)).model_dump()]
    for table in tables:
        known = known[0 if isinstance(table, int) else table]
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
