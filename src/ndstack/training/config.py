"""What a run is, as plain data: `config.json`, a TOML file, or the flags of `ndstack train`.

The defaults are the recipe of sections 5.8 and 6.2: Adam, gradients clipped at 5, the learning rate times
0.9 after 5 epochs without improvement, a stop after 10, at most 200 epochs, EOS predicted.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
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
    field_validator,
    model_validator,
)

from ndstack import files
from ndstack.errors import TrainingError, first_problem
from ndstack.languages import Plan
from ndstack.languages.language import Lengths
from ndstack.nn.language_models.language_model import OutputKind
from ndstack.nn.networks.controllers import ControllerKind
from ndstack.nn.networks.initialization import LayerInit
from ndstack.nn.storage.description import Layers, Size
from ndstack.training.recipes import take_recipe

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["32", "64", "bf16-mixed"]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
STAGE_SETTINGS = ("max_epochs", "stop_after", "learning_rate")
"""What a stage may have of its own."""
Folder = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Settings(BaseModel):
    """Unknown names and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Stage(Settings):
    """Strings of other lengths that are learned first; what is not given is as in the last stage."""

    lengths: Lengths
    """The shortest and the longest strings."""
    max_epochs: PositiveInt | None = None
    stop_after: PositiveInt | None = None
    learning_rate: PositiveFloat | None = None

    @field_validator("lengths")
    @classmethod
    def _check_lengths(cls, lengths: Lengths) -> Lengths:
        return Plan(lengths=lengths).lengths


class TrainingConfig(Settings):
    """How a model is trained; `fit` needs no more than this."""

    seed: Seed = 0
    """Of the order of batches and of dropout."""
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: PositiveFloat = 0.005
    clip: PositiveFloat | None = 5.0
    """The greatest norm of a gradient."""
    max_epochs: PositiveInt = 200
    decay: Annotated[float, Field(gt=0, le=1)] = 0.9
    decay_after: PositiveInt = 5
    decay_threshold: Annotated[float, Field(ge=0, lt=1)] = 1e-4
    decay_by: Literal["cross_entropy", "perplexity"] = "cross_entropy"
    """Of which number the threshold is a share."""
    stop_after: PositiveInt = 10
    eos: bool = True
    """Whether the end of a string is predicted (from chapter 6 on) or not (chapter 5)."""
    device: Device = "auto"
    precision: Precision = "32"
    processes: Size = 1
    """Each takes its share of every batch."""
    threads: Size | None = None
    """Of each process; all cores if not given. Sums depend on it in their last bits."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """After so many seconds within an epoch the state is saved, as it is after every epoch."""
    snapshots: NonNegativeInt = 0
    """Keep the parameters before training and after each of so many epochs."""
    stages: tuple[Stage, ...] = ()
    """Before the last stage, which is the run's own data and the settings above. Each stage starts from the
    best parameters of the one before, with a fresh optimizer and schedule."""

    @model_validator(mode="after")
    def _complete_stages(self) -> Self:
        """Fill in what stages take over, so that a later change of the last stage does not change them."""
        own = {name: getattr(self, name) for name in STAGE_SETTINGS}
        complete = (Stage(**(own | one.model_dump(exclude_none=True))) for one in self.stages)
        object.__setattr__(self, "stages", tuple(complete))
        return self

    def at(self, stage: int) -> TrainingConfig:
        """The settings of a stage; stages count from 0, the last is the run's own."""
        if stage == len(self.stages):
            return self
        own = self.stages[stage]
        return self.model_copy(update={name: getattr(own, name) for name in STAGE_SETTINGS})

    @property
    def most_epochs(self) -> int:
        """The greatest number of epochs of all stages together."""
        return sum(self.at(stage).max_epochs for stage in range(len(self.stages) + 1))


class ModelOptions(Settings):
    """What `ndstack.nn.models.build` can be told besides a name; see there."""

    hidden: Size = 20
    num_layers: Size | None = None
    controller: ControllerKind = "lstm"
    embedding: Size | None = None
    window: Size | None = None
    depth: Size | None = None
    bottom_fix: bool | None = None
    reading_layers: Layers = 0
    output_reading: bool = False
    normalize_reading: bool = True
    d_model: Size = 32
    heads: Size = 4
    feedforward: Size = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    output: OutputKind = "full"
    layers_init: LayerInit = "xavier"
    actions_init: LayerInit = "uniform"
    attention_actions_init: LayerInit = "xavier"
    pushes_init: LayerInit | None = None
    tanh_gain: PositiveFloat = 1.0
    stacks_apart: bool = False
    exp_pushes: bool = False
    init_bound: PositiveFloat = 0.1


class DataConfig(Plan):
    """Strings sampled from the run's seed, or read from a folder that `ndstack dataset` made."""

    folder: Folder | None = None
    sha256: dict[str, str] | None = None
    """Of the files in the folder, filled in when a run starts."""


class CorpusConfig(Settings):
    """Text that `ndstack text prepare` made, in place of the strings of a formal language."""

    folder: Folder
    sha256: dict[str, str] | None = None
    """Of its vocabulary and its parts, filled in when a run starts."""
    rows: Size = 32
    """Into so many rows the text is folded."""
    length: Size = 35
    """Of the chunks of truncated BPTT."""


class RunConfig(Settings):
    """All of a run: the same language, data, model and training again from this file alone."""

    format: Literal["ndstack run 1"] = "ndstack run 1"
    language: str
    grammar: str | None = None
    """The rules, for a language that is not one of ndstack's own."""
    model: str | None
    """A name of `ndstack.nn.models`; None for a network made in Python."""
    seed: Seed = 0
    """Of the data, the first parameters and, unless `training.seed` says otherwise, of the training."""
    start_from: Folder | None = None
    """Another run, whose best parameters are the first ones of this run; drawn from the seed if not given."""
    start_sha256: str | None = None
    """Of the file with these parameters, filled in when a run starts."""
    data: DataConfig = DataConfig()
    corpus: CorpusConfig | None = None
    """For a run on text; `language` is then no more than a name."""
    options: ModelOptions = ModelOptions()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.training.stages and self.corpus is not None:
            raise ValueError("training.stages given for a run on text, expected for formal languages only")
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "the configuration") -> Self:
        """Check plain data; what is wrong is said in one line that names the place."""
        values = merge(*take_recipe(values, source))
        training = values.get("training", {})
        if isinstance(training, Mapping):
            values["training"] = {"seed": values.get("seed", 0), **training}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise TrainingError(f"{source}: {first_problem(error)}{_near(error)}") from None


def _near(error: ValidationError) -> str:
    """If a name is unknown, those that it may have been meant to be."""
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


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    text = files.read_text(path, TrainingError)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
        raise TrainingError(f"{path} is not a TOML file: {error}") from None


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base with changes to it, tables within tables included."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_setting(text: str) -> dict[str, Any]:
    """`training.clip=3` as nested tables; the value in TOML's notation, or else a string."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(key.isidentifier() for key in keys):
        raise TrainingError(f"{text!r} is not a setting; write it as in training.clip=3 or options.hidden=40")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()
    return nested(keys, parsed)


def nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Tables within tables, the value in the innermost."""
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]
