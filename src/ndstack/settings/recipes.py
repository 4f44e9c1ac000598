"""Named bundles of settings: `recipe = "public"` in a file of settings, or `--recipe public`.

A bundle is the same as its settings one by one; `config.json` has these, and not its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndstack.errors import TrainingError

RECIPES: dict[str, dict[str, Any]] = {
    "dissertation": {},
    "public": {
        "options": {
            "actions_init": "uniform",
            "pushes_init": "uniform",
            "tanh_gain": 5 / 3,
            "stacks_apart": True,
            "exp_pushes": True,
        },
        "training": {"decay_after": 6, "decay_by": "perplexity"},
    },
}
"""The text of the dissertation, which the defaults are; and its public code, where the two differ."""


TEXT: dict[str, Any] = {
    "training": {
        "optimizer": "sgd",
        "learning_rate": 20.0,
        "clip": 0.25,
        "decay": 1 / 1.5,
        "decay_after": 1,
        "decay_threshold": 0.0,
        "stop_after": 2,
        "max_epochs": 100,
    }
}
"""Of recurrent networks on text (sections 7.3 and 9.4). There, for a loss per token, the learning rate is
drawn from [1, 100] and the clipping threshold from [0.0112, 1.12], both log-uniform; these are two that learn
well."""

TEXT_TRANSFORMER: dict[str, Any] = {
    "training": TEXT["training"] | {"optimizer": "adam", "learning_rate": 1e-3, "clip": 1.0}
}
"""Of transformers on text, which learn badly by SGD."""


def take_recipe(values: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the recipe that is named among these settings, and the settings without its name."""
    own = dict(values)
    name = own.pop("recipe", "dissertation")
    if not isinstance(name, str) or name not in RECIPES:
        raise TrainingError(f"{source}: there is no recipe {name!r}; expected one of {', '.join(RECIPES)}")
    return RECIPES[name], own
