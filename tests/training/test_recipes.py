import json

import pytest

from ndstack.errors import NdstackError
from ndstack.settings.recipes import RECIPES
from ndstack.training import RunConfig, change_settings
from tests.commands import ndstack
from tests.training.small import small_run

BASE = {"language": "dyck", "model": "rns-2-3"}


def test_a_recipe_is_its_settings():
    config = RunConfig.of({**BASE, "recipe": "public"})
    assert config == RunConfig.of({**BASE, **RECIPES["public"]})
    assert config.options.tanh_gain == pytest.approx(5 / 3)
    assert config.options.pushes_init == "uniform"
    assert config.options.stacks_apart
    assert config.options.exp_pushes
    assert config.training.decay_after == 6
    assert config.options.attention_actions_init == "xavier"
    assert RunConfig.of({**BASE, "recipe": "dissertation"}) == RunConfig.of(BASE)


def test_what_is_said_besides_wins():
    config = RunConfig.of({**BASE, "recipe": "public", "training": {"decay_after": 3}})
    assert config.training.decay_after == 3
    assert config.training.decay_by == "perplexity"


@pytest.mark.parametrize("name", ["publik", 3, None])
def test_unknown_recipes(name):
    with pytest.raises(NdstackError, match=r"there is no recipe .* expected one of dissertation, public"):
        RunConfig.of({**BASE, "recipe": name})


def test_a_run_that_has_begun_keeps_its_recipe(tmp_path):
    small_run(tmp_path / "run", "lstm")
    with pytest.raises(NdstackError, match="recipe given for a run that started without it"):
        change_settings(tmp_path / "run", {"recipe": "public"})


def test_the_command_records_settings(tmp_path):
    small = ["--lengths", "4:6", "--train", "10", "--max-epochs", "1", "--quiet"]
    done = ndstack(
        "train", "dyck", "--model", "lstm", *small, "--recipe", "public", "--out", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "recipe" not in config
    assert config["training"]["decay_after"] == 6
