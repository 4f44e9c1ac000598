"""A run folder that lacks a file says which; a run that is not there yet leaves nothing behind."""

import shutil

import pytest

from ndstack.errors import NdstackError, TrainingError
from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import LanguageModel, models
from ndstack.nn.networks.backbone import Backbone
from ndstack.training import Run, TrainingConfig, fit, material, train
from ndstack.training.run import BEST, CONFIG, ENVIRONMENT, METRICS, STATE
from tests.training.small import small_config, small_run
from tests.training.test_commands import run

__all__ = ["run"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    small_run(folder, "lstm")
    return folder


@pytest.mark.parametrize("how", ["is missing", "is empty"])
@pytest.mark.parametrize("name", [BEST, METRICS])
@pytest.mark.parametrize(
    "command", ["show one --json", "compare two one --json", "evaluate one", "generate one"]
)
def test_a_file_that_is_gone_is_named(command, name, how, whole, run, tmp_path):
    for copy in ("one", "two"):
        shutil.copytree(whole, tmp_path / copy)
    (tmp_path / "one" / name).unlink()
    if how == "is empty":
        (tmp_path / "one" / name).touch()
    output = run(*command.split(), code=2)
    assert output.out == ""
    assert output.err.startswith(f"ndstack: error: one/{name} {how}; ")
    assert output.err.count("\n") == 1


def test_metrics_that_were_lost_in_part_are_written_again_by_the_command_that_is_named(whole, run, tmp_path):
    shutil.copytree(whole, tmp_path / "my run")
    path = tmp_path / "my run" / METRICS
    before = path.read_text()
    path.write_text(before.partition("\n")[0] + "\n")
    output = run("show", "my run", code=2)
    assert "metrics.jsonl has 1 of 3 epochs; ndstack train --resume 'my run' writes it again" in output.err
    run("train", "--resume", "my run")
    assert path.read_text() == before
    run("show", "my run")


def test_without_its_state_a_run_can_still_be_looked_at(whole, run, tmp_path):
    shutil.copytree(whole, tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "last")
    run("show", "one")
    run("compare", "one")
    (tmp_path / "one" / METRICS).unlink()
    assert "put it back from a copy" in run("show", "one", code=2).err


def test_a_state_that_says_nothing_is_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "one")
    from ndstack.nn.storage.files import pack_tensors

    (tmp_path / "one" / STATE).write_bytes(pack_tensors({}, "{}"))
    with pytest.raises(TrainingError, match="does not say how many epochs are complete"):
        Run.open(tmp_path / "one").check()


def test_a_run_without_a_complete_epoch_is_no_error(run, tmp_path):
    Run.create(tmp_path / "one", small_config("lstm"))
    assert run("show", "one").out == "one: no epoch is complete yet\n"
    assert "null" in run("compare", "one", "--json").out


def test_a_run_that_was_killed_while_its_folder_was_made_begins_all_the_same(whole, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / ".config.json.abcdefgh.tmp").touch()  # killed before there was a configuration
    small_run(folder, "lstm", training={"max_epochs": 1})
    assert not list(folder.glob(".*.tmp"))
    late = tmp_path / "two"
    late.mkdir()
    shutil.copy(whole / CONFIG, late)  # killed after that
    train(late)
    assert (late / METRICS).read_bytes() == (whole / METRICS).read_bytes()
    assert (late / ENVIRONMENT).exists()


class Own(Backbone):
    """A network that ndstack cannot describe."""

    input_size = output_size = 4

    def start(self, batch_size, dtype=None, device=None): ...

    def forward(self, x, state=None): ...


def test_a_network_of_ones_own_cannot_be_saved_and_leaves_no_folder_behind(tmp_path):
    data = make_dataset(get("dyck"), 1, Plan(train=20, validation=10, lengths=(4, 8), test_per_length=0))
    model = LanguageModel(Own(), data.language.alphabet)
    for _ in range(2):
        with pytest.raises(NdstackError, match="a model with a Own cannot be saved"):
            fit(model, data, TrainingConfig(max_epochs=1), folder=tmp_path / "run")
        assert not list(tmp_path.iterdir())
    Run.create(tmp_path / "half", small_config("lstm"))  # as earlier versions left it
    with pytest.raises(NdstackError, match="a model with a Own cannot be saved"):
        fit(model, data, TrainingConfig(max_epochs=1), folder=tmp_path / "half")


def test_language_and_model_are_made_once(tmp_path, monkeypatch):
    made = []
    for name in ("from_grammar", "get"):
        real = getattr(material, name)
        monkeypatch.setattr(
            material,
            name,
            lambda *given, real=real, **named: made.append("language") or real(*given, **named),
        )
    build = models.build_from
    monkeypatch.setattr(
        models, "build_from", lambda *given, **named: made.append("model") or build(*given, **named)
    )
    small_run(tmp_path / "run", "lstm", training={"max_epochs": 1})
    assert made == ["language", "model"]
