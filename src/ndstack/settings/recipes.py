"""Recipes, which are named bundles of settings: `recipe = "public"` in a file, or `--recipe public`.

A recipe has the same effect as its settings one by one; `config.json` contains the settings, not the name.
"""

from ndstack.errors import TrainingError
from ndstack.settings.reading import Table, Values, merge

RECIPES: dict[str, Table] = {
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
"""The recipe in the text of the dissertation, which is that of the defaults; and the recipe of its public
code, where it differs."""

_TEXT: Table = {
    "optimizer": "sgd",
    "learning_rate": 20.0,
    "clip": 0.25,
    "decay": 1 / 1.5,
    "decay_after": 1,
    "decay_threshold": 0.0,
    "stop_after": 2,
    "max_epochs": 100,
}
TEXT: Table = {"training": _TEXT}
"""The recipe for recurrent networks on text (sections 7.3 and 9.4). There, for a loss per token, the learning
rate is drawn from [1, 100] and the clipping threshold from [0.0112, 1.12], both log-uniform. The two values
here lead to good results."""

TEXT_TRANSFORMER: Table = {"training": _TEXT | {"optimizer": "adam", "learning_rate": 1e-3, "clip": 1.0}}
"""The recipe for transformers on text, which learn badly with SGD."""


TASKS: dict[str, Table] = {
    "transduce": {"data": {"lengths": (1, 40), "test_lengths": (41, 500), "test_per_length": 1}}
}
"""The settings of tasks that differ from the defaults: lengths as in the Chomsky-hierarchy benchmark."""


def with_task_defaults(values: Values) -> Table:
    """Return settings with those that are usual for their task, as far as they are not given."""
    return merge(TASKS.get(str(values.get("task")), {}), values)


def take_recipe(values: Values, source: str) -> tuple[Table, Table]:
    """Return the settings of the recipe named among these settings, and the settings without its name."""
    own = dict(values)
    name = own.pop("recipe", "dissertation")
    if not isinstance(name, str) or name not in RECIPES:
        raise TrainingError(f"{source}: there is no recipe {name!r}; expected one of {', '.join(RECIPES)}")
    return RECIPES[name], own
