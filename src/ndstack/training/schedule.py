"""When the learning rate falls and when training stops (section 5.8).

After every epoch, first the learning rate: it is multiplied by `decay` once the validation cross-entropy has
not improved for `decay_after` epochs, where an improvement is one by more than a relative threshold. Then the
stop: after `stop_after` epochs without any improvement.
"""

import math

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from ndstack.settings.training import TrainingConfig


class Schedule(BaseModel):
    """What has to be remembered from epoch to epoch."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    learning_rate: float
    best: float = math.inf
    best_epoch: NonNegativeInt = 0
    epochs: NonNegativeInt = 0
    plateau: float = math.inf
    """The best value as far as the learning rate is concerned."""
    on_plateau: NonNegativeInt = 0
    """Epochs since then, or since the learning rate fell."""

    def end_epoch(self, value: float, config: TrainingConfig) -> bool:
        """Take in the validation cross-entropy of one more epoch; whether it is the best so far."""
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
        """Why there is no further epoch, or None if there is one."""
        if self.epochs - self.best_epoch >= config.stop_after:
            return f"no improvement for {config.stop_after} epochs"
        if self.epochs >= config.max_epochs:
            return f"all {config.max_epochs} epochs done"
        return None


def _is_better(value: float, best: float, config: TrainingConfig) -> bool:
    """Whether a cross-entropy, or the perplexity that belongs to it, is less by more than the threshold."""
    if config.decay_by == "perplexity":
        return value < best + math.log1p(-config.decay_threshold)
    return value < best * (1 - config.decay_threshold)
