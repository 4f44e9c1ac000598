"""The configuration of a run: `config.json`, a TOML file, or the flags of `ndstack train`."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import ValidationError, model_validator

from ndstack.errors import TrainingError, first_problem
from ndstack.settings.base import Folder, Seed, Settings
from ndstack.settings.data import CorpusConfig, DataConfig, PairsConfig, RecognitionConfig
from ndstack.settings.document import near_name
from ndstack.settings.model import ModelOptions
from ndstack.settings.reading import Values, merge
from ndstack.settings.recipes import take_recipe
from ndstack.settings.training import TrainingConfig

TaskName = Literal["model", "recognize", "transduce"]


class RunConfig(Settings):
    """Everything that determines a run: its language, data, model and training."""

    format: Literal["ndstack run 1"] = "ndstack run 1"
    """The format of this table."""
    task: TaskName = "model"
    """What is learned: "model" for the probabilities of strings, "recognize" for membership in a language,
    "transduce" for outputs of inputs."""
    language: str
    """The name of a formal language, of a transduction or of a registered task; for a run on text or on pairs
    from files, only a label."""
    grammar: str | None = None
    """The rules of a language that has no name of its own."""
    model: str | None
    """A name of `ndstack.nn.models`; None for a network that was made in Python."""
    seed: Seed = 0
    """The seed of the data, the initial parameters and, unless `training.seed` is given, the training."""
    start_from: Folder | None = None
    """Another run, whose best parameters are the initial ones of this run; if not given, they are random."""
    start_sha256: str | None = None
    """The checksum of the file with these parameters, filled in when a run starts."""
    data: DataConfig = DataConfig()
    """The strings of a formal language."""
    recognition: RecognitionConfig = RecognitionConfig()
    """The task "recognize"."""
    pairs: PairsConfig | None = None
    """The pairs of the task "transduce", if they are read from files."""
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
        if self.corpus is not None and self.task != "model":
            raise ValueError(f"task {self.task} given for a run on text, expected model")
        if self.pairs is not None and self.task != "transduce":
            raise ValueError(f"pairs given for the task {self.task}, expected transduce")
        if self.task == "transduce" and (self.grammar is not None or self.data.folder is not None):
            raise ValueError("a grammar or a data folder given for the task transduce, expected pairs")
        return self

    @classmethod
    def of(cls, values: Values, source: str = "the configuration") -> Self:
        """Return the configuration in plain data; an error names the first wrong setting in one line."""
        values = merge(*take_recipe(values, source))
        training = values.get("training", {})
        if isinstance(training, Mapping):
            values["training"] = {"seed": values.get("seed", 0), **training}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise TrainingError(f"{source}: {first_problem(error)}{near_name(error, cls)}") from None
