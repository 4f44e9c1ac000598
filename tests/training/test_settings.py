"""Every setting is declared once: flags, help, checks, signatures and documentation follow from it."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import Field, PositiveInt
from typer.testing import CliRunner

from ndstack.cli.options import Flags, help_of, unfold
from ndstack.errors import NdstackError
from ndstack.nn import Transformer, models
from ndstack.settings import ModelOptions, RunConfig, TrainingConfig
from ndstack.settings.document import table


class OtherTraining(TrainingConfig):
    max_epochs: Annotated[PositiveInt, Field(le=9)] = 7
    """How often the sun rises."""


class OtherRun(RunConfig):
    training: OtherTraining = OtherTraining()


def command(declared):
    """A command with one flag, and what it was called with."""
    app, given = typer.Typer(rich_markup_mode=None), []

    @app.command()
    @unfold
    def run(values: Annotated[dict[str, object], Flags("training.max_epochs", declared=declared)]) -> None:
        """Run."""
        given.append(declared.of({"language": "dyck", "model": "lstm", **values}))

    return app, given


@pytest.mark.parametrize(
    ("declared", "text", "default"),
    [(RunConfig, "The greatest number of epochs. [200]", 200), (OtherRun, "How often the sun rises. [7]", 7)],
)
def test_a_changed_declaration_changes_help_defaults_and_checks(declared, text, default):
    app, given = command(declared)
    assert text in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert CliRunner().invoke(app, []).exit_code == 0
    assert CliRunner().invoke(app, ["--max-epochs", "5"]).exit_code == 0
    assert [config.training.max_epochs for config in given] == [default, 5]
    outcome = CliRunner().invoke(app, ["--max-epochs", "0"])
    assert isinstance(outcome.exception, NdstackError)
    assert "training.max_epochs: Input should be greater than 0" in str(outcome.exception)
    too_many = CliRunner().invoke(app, ["--max-epochs", "10"]).exception
    assert (too_many is None) == (declared is RunConfig)


def test_the_help_of_the_command_is_that_of_the_declaration():
    from ndstack.cli import app

    group: Any = typer.main.get_command(app)
    flags = {option.name: option for option in group.commands["train"].params}
    for path in ("training.learning_rate", "training.eos", "training.threads", "training.device"):
        assert flags[path.partition(".")[2]].help == help_of(path)
    text = {option.name: option for option in group.commands["text"].commands["train"].params}
    assert text["learning_rate"].help == "The learning rate at the beginning. [20; tf: 0.001]"


def test_the_arguments_of_functions_have_the_declared_defaults():
    parameters = inspect.signature(models.build).parameters
    for name, field in ModelOptions.model_fields.items():
        assert parameters[name].default == field.get_default(call_default_factory=True)
        assert f"        {name}: " in models.build.__doc__
    assert inspect.signature(Transformer).parameters["heads"].default == ModelOptions().heads


def test_every_setting_is_described():
    for name, _, description in table(RunConfig):
        assert description.endswith("."), name


def test_the_documentation_lists_every_setting():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    for name, default, description in table(RunConfig):
        assert f"| `{name}` | {default} | {description} |\n" in page
