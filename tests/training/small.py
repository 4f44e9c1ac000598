"""Runs small enough for tests."""

from typing import Any

from ndstack.settings.reading import merge
from ndstack.training import RunConfig, train

DATA = {"train": 60, "validation": 20, "lengths": (3, 9), "test_lengths": (3, 11), "test_per_length": 5}


def small_config(model: str = "rns-1-2", **changes: Any) -> RunConfig:
    """Three epochs of six batches."""
    base = {
        "language": "marked-reversal",
        "model": model,
        "data": DATA,
        "options": {"d_model": 8, "feedforward": 8, "num_layers": 3} if "tf" in model else {"hidden": 6},
        "training": {"max_epochs": 3, "threads": 1, "device": "cpu"},
    }
    return RunConfig.of(merge(base, changes))


def small_run(folder: Any, model: str = "rns-1-2", **changes: Any) -> Any:
    """Train it."""
    return train(folder, small_config(model, **changes))
