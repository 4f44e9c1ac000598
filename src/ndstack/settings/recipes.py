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


def take_recipe(values: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the recipe that is named among these settings, and the settings without its name."""
    own = dict(values)
    name = own.pop("recipe", "dissertation")
    if not isinstance(name, str) or name not in RECIPES:
        raise TrainingError(f"{source}: there is no recipe {name!r}; expected one of {', '.join(RECIPES)}")
    return RECIPES[name], own
