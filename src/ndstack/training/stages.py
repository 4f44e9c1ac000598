"""The stages of a run: what is learned in each, and how. A run without stages is a run with one."""

from __future__ import annotations

from ndstack.errors import TrainingError
from ndstack.languages import Dataset, make_dataset
from ndstack.nn import LanguageModel
from ndstack.settings.training import TrainingConfig
from ndstack.training.task import FormalTask, Share, Task


class Stages:
    """Tasks and settings by stage, from 0; the last one is what was given.

    The strings of an earlier stage are drawn from the data set's seed when the stage begins, as many as the
    data set has, of the stage's lengths.
    """

    def __init__(
        self, model: LanguageModel, data: Dataset | Task, config: TrainingConfig, share: Share
    ) -> None:
        if config.stages and not isinstance(data, Dataset):
            raise TrainingError("stages given, but they need a data set of a formal language to draw from")
        self.model, self.data, self.whole, self.share = model, data, config, share
        self._made: tuple[int, Task] | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.whole.stages) + 1

    def config(self, stage: int) -> TrainingConfig:
        """The settings of a stage."""
        return self.whole.at(stage)

    def task(self, stage: int) -> Task:
        """What is learned in a stage; made when it is asked for."""
        if self._made is None or self._made[0] != stage:
            self._made = stage, self._make(stage)
        return self._made[1]

    def _make(self, stage: int) -> Task:
        data = self.data
        if not isinstance(data, Dataset):
            return data
        if stage < self.count - 1:
            changes = {"lengths": self.whole.stages[stage].lengths, "test_per_length": 0}
            data = make_dataset(data.language, data.seed, data.plan.model_copy(update=changes))
        return FormalTask(data, self.model, eos=self.whole.eos, seed=self.whole.seed, share=self.share)
