"""The stages of a run, each with a task and settings. A run without stages has one."""

from ndstack.errors import TrainingError
from ndstack.languages import Dataset, make_dataset
from ndstack.nn import LanguageModel
from ndstack.settings.training import TrainingConfig
from ndstack.training.task import FormalTask, Model, Resampled, Share, Task


class Stages:
    """The tasks and settings of the stages, from 0; those of the last stage are the given ones.

    An earlier stage has as many strings as the data set, of the stage's lengths. They are sampled from the
    data set's seed when the stage starts.
    """

    def __init__(self, model: Model, data: Dataset | Task, config: TrainingConfig, share: Share) -> None:
        if isinstance(data, Dataset) and not isinstance(model, LanguageModel):
            raise TrainingError("a data set of a formal language given for a transducer, expected a task")
        if config.stages and not isinstance(data, Dataset | Resampled):
            raise TrainingError("stages given, but there is no data set of a formal language to sample from")
        self.model, self.data, self.whole, self.share = model, data, config, share
        self._made: tuple[int, Task] | None = None

    @property
    def count(self) -> int:
        """The number of stages."""
        return len(self.whole.stages) + 1

    def config(self, stage: int) -> TrainingConfig:
        """Return the settings of a stage."""
        return self.whole.at(stage)

    def task(self, stage: int) -> Task:
        """Return the task of a stage, which is made when it is first needed."""
        if self._made is None or self._made[0] != stage:
            self._made = stage, self._make(stage)
        return self._made[1]

    def _make(self, stage: int) -> Task:
        data = self.data
        if not isinstance(data, Dataset):
            if stage < self.count - 1 and isinstance(data, Resampled):
                return data.with_lengths(self.whole.stages[stage].lengths)
            return data
        if stage < self.count - 1:
            changes = {"lengths": self.whole.stages[stage].lengths, "test_per_length": 0}
            data = make_dataset(data.language, data.seed, data.plan.model_copy(update=changes))
        assert isinstance(self.model, LanguageModel)
        return FormalTask(data, self.model, eos=self.whole.eos, seed=self.whole.seed, share=self.share)
