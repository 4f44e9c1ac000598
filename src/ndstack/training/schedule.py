"""The schedule of the learning rate and of the end of training (section 5.8).

When the validation cross-entropy has not improved by more than a relative threshold for `decay_after` epochs,
the learning rate is multiplied by `decay`. After `stop_after` epochs without any improvement, training stops.
"""

import math

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from ndstack.settings.training import TrainingConfig


class Schedule(BaseModel):
    """The state of the schedule after some number of epochs."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    learning_rate: float
    best: float = math.inf
    best_epoch: NonNegativeInt = 0
    epochs: NonNegativeInt = 0
    plateau: float = math.inf
    """The value of the last improvement by more than the threshold."""
    on_plateau: NonNegativeInt = 0
    """The number of epochs since that improvement, or since the learning rate was reduced."""

    def end_epoch(self, value: float, config: TrainingConfig) -> bool:
        """Add the validation cross-entropy of an epoch, and return whether it is the best so far."""
        self.epochs += 1
        if _is_better(value, self.plateau, config):
            self.plateau, self.on_plateau = value, 0
        else:
            self.on_plateau += 1
        if self.on_plateau >= config.decay_after:
            self.learning_rate *= config.decay
            self.on_plateau = 0
        improved = value < self.best
        if improved:
            self.best, self.best_epoch = value, self.epochs
        return improved

    def stopped(self, config: TrainingConfig) -> str | None:
        """Return why there is no further epoch, or None if there is one."""
        if self.epochs - self.best_epoch >= config.stop_after:
            return f"no improvement for {config.stop_after} epochs"
        if self.epochs >= config.max_epochs:
            return f"all {config.max_epochs} epochs done"
        return None


def _is_better(value: float, best: float, config: TrainingConfig) -> bool:
    """Return whether a cross-entropy, or its perplexity, is less than another by more than the threshold."""
    if config.decay_by == "perplexity":
        return value < best + math.log1p(-config.decay_threshold)
    return value < best * (1 - config.decay_threshold)
