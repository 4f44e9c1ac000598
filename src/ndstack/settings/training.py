"""How a model is trained: every setting is declared here, and nowhere else.

The defaults are the recipe of sections 5.8 and 6.2: Adam, gradients clipped at 5, a learning rate that is
multiplied by 0.9 after 5 epochs without improvement, a stop after 10, at most 200 epochs, EOS predicted. The
recipes for text have other defaults (`recipes`).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from ndstack.settings.base import Rate, Seed, Settings, Size
from ndstack.settings.data import Lengths, Plan

STAGE_SETTINGS = ("max_epochs", "stop_after", "learning_rate")
"""The settings of the training that a stage may have of its own."""


class Stage(Settings):
    """Strings of other lengths that are learned first; what is not given is as in the last stage."""

    lengths: Lengths
    """The lengths of the shortest and the longest strings."""
    max_epochs: PositiveInt | None = None
    """The greatest number of epochs of this stage."""
    stop_after: PositiveInt | None = None
    """The stage ends after this number of epochs without improvement."""
    learning_rate: PositiveFloat | None = None
    """The learning rate at the beginning of this stage."""

    @field_validator("lengths")
    @classmethod
    def _check_lengths(cls, lengths: Lengths) -> Lengths:
        return Plan(lengths=lengths).lengths


class TrainingConfig(Settings):
    """How a model is trained; `fit` needs no more than this."""

    seed: Seed = 0
    """The seed of the order of batches and of dropout."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """The optimizer of torch that updates the parameters."""
    learning_rate: PositiveFloat = 0.005
    """The learning rate at the beginning."""
    clip: PositiveFloat | None = 5.0
    """The greatest norm of a gradient; larger ones are scaled down to it."""
    max_epochs: PositiveInt = 200
    """The greatest number of epochs."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The factor of the learning rate on a plateau."""
    decay_after: PositiveInt = 5
    """The number of epochs without improvement that make a plateau."""
    decay_threshold: Rate = 1e-4
    """The relative improvement that counts as one, as far as plateaus are concerned."""
    decay_by: Literal["cross_entropy", "perplexity"] = "cross_entropy"
    """The number whose relative improvement is compared with the threshold."""
    stop_after: PositiveInt = 10
    """Training stops after this number of epochs without improvement."""
    eos: bool = True
    """Whether the end of a string is predicted (from chapter 6 on) or not (chapter 5)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """The device to train on; "auto" is CUDA where torch finds it."""
    precision: Literal["32", "64", "bf16-mixed"] = "32"
    """The floating-point precision: 32 or 64 bits, or bfloat16 where torch's autocast allows it."""
    processes: Size = 1
    """The number of processes; each takes its share of every batch."""
    threads: Size | None = None
    """The number of threads of each process; if not given, all cores. Sums depend on it in their last
    bits."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """The state is saved after this number of seconds within an epoch, and after every epoch."""
    snapshots: NonNegativeInt = 0
    """Keep the parameters before training and after each of this number of first epochs."""
    stages: tuple[Stage, ...] = ()
    """Stages before the last one, which is the run's own data and the settings above. Each stage starts from
    the best parameters of the one before, with a fresh optimizer and schedule."""

    @model_validator(mode="after")
    def _complete_stages(self) -> Self:
        """Fill in what stages take over, so that a later change of the last stage does not change them."""
        own = {name: getattr(self, name) for name in STAGE_SETTINGS}
        complete = (Stage(**(own | one.model_dump(exclude_none=True))) for one in self.stages)
        object.__setattr__(self, "stages", tuple(complete))
        return self

    def at(self, stage: int) -> TrainingConfig:
        """Return the settings of a stage; stages count from 0, and the last one has the run's own."""
        if stage == len(self.stages):
            return self
        own = self.stages[stage]
        return self.model_copy(update={name: getattr(own, name) for name in STAGE_SETTINGS})

    @property
    def most_epochs(self) -> int:
        """The greatest number of epochs of all stages together."""
        return sum(self.at(stage).max_epochs for stage in range(len(self.stages) + 1))
