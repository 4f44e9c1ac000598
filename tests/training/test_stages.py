"""Runs in stages: short strings first, each stage from the best parameters of the one before."""

import json
import random
import shutil
import time

import pytest
import torch

from ndstack.errors import TrainingError
from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import models
from ndstack.nn.storage.files import pack_tensors, read_tensors
from ndstack.settings.reading import merge
from ndstack.training import Run, RunConfig, TrainingConfig, change_settings, fit, train
from ndstack.training.launch import use_threads
from ndstack.training.pictures import stage_borders
from ndstack.training.run import BEST, METRICS, STATE, best_epoch
from tests.training.small import small_config
from tests.training.test_resume import same, start

STAGES = [
    {"lengths": (3, 5), "max_epochs": 2, "learning_rate": 0.02},
    {"lengths": (3, 7), "stop_after": 1, "max_epochs": 3},
]


def staged(model="rns-1-2", **changes):
    return small_config(model, **merge({"training": {"stages": STAGES}}, changes))


def chain(folder, model="rns-1-2"):
    """The same as separate runs, each started from the one before."""
    before = None
    stages: list[dict] = [*STAGES, {"lengths": (3, 9)}]
    for number, stage in enumerate(stages):
        own = {name: value for name, value in stage.items() if name != "lengths"}
        settings = {"data": {"lengths": stage["lengths"]}, "training": own, "start_from": before}
        before = str(folder / str(number))
        train(before, small_config(model, **settings))
    return [Run.open(folder / str(number)) for number in range(3)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "staged"
    return folder, train(folder, staged())


def test_a_stage_takes_over_what_it_does_not_say():
    config = staged(training={"max_epochs": 7, "stop_after": 4, "learning_rate": 0.003}).training
    assert [stage.model_dump() for stage in config.stages] == [
        {"lengths": (3, 5), "max_epochs": 2, "stop_after": 4, "learning_rate": 0.02},
        {"lengths": (3, 7), "max_epochs": 3, "stop_after": 1, "learning_rate": 0.003},
    ]
    assert [config.at(number).max_epochs for number in range(3)] == [2, 3, 7]
    assert config.most_epochs == 12
    again = RunConfig.model_validate_json(staged().model_dump_json())
    assert again == staged()


def test_it_is_the_same_as_a_chain_of_runs_to_the_last_bit(whole, tmp_path):
    folder, result = whole
    runs = chain(tmp_path)
    lines = [line for run in runs for line in run.metrics()]
    mine = Run.open(folder).metrics()
    assert [line["epoch"] for line in mine] == list(range(1, len(lines) + 1))
    assert [line["stage"] for line in mine] == [
        number for number, run in enumerate(runs, 1) for _ in run.metrics()
    ]
    for one, two in zip(mine, lines, strict=True):
        assert {**one, "epoch": 0} == {**two, "epoch": 0, "stage": one["stage"]}
    assert (folder / BEST).read_bytes() == (runs[-1].folder / BEST).read_bytes()
    before = len(lines) - len(runs[-1].metrics())
    assert result.best_epoch == before + best_epoch(runs[-1].metrics())["epoch"]
    assert result.epochs == len(lines)
    assert result.updates == 6 * len(lines)
    assert Run.open(folder).summary()["best_epoch"] == result.best_epoch


def test_dropout_too(tmp_path):
    train(tmp_path / "staged", staged("tf+sup-4"))
    runs = chain(tmp_path, "tf+sup-4")
    assert (tmp_path / "staged" / BEST).read_bytes() == (runs[-1].folder / BEST).read_bytes()


def test_without_a_folder_the_model_is_the_same(whole):
    folder, result = whole
    config = staged()
    language = get(config.language)
    data = make_dataset(language, config.seed, Plan(**config.data.model_dump(exclude={"folder", "sha256"})))
    model = models.build("rns-1-2", language, seed=config.seed, hidden=6)
    with use_threads(config):
        made = fit(model, data, config.training)
    assert made == result
    best = read_tensors(folder / BEST)[0]
    assert all(torch.equal(best[name], value) for name, value in model.state_dict().items())


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    config = staged(training={"checkpoint_seconds": 0.0})
    train(tmp_path / "whole", config)
    rng, seen, folder = random.Random(3), set(), tmp_path / "killed"
    process = start(folder, config)
    for stage in (0, 0, 1, 1, 2):
        while process.is_alive() and (not (folder / STATE).exists() or position(folder)[0] < stage):
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.03))
        process.kill()
        process.join()
        seen.add(position(folder)[0])
        process = start(folder)
    process.join()
    assert process.exitcode == 0
    assert len(seen) > 1, "the run was over too soon: make it longer"
    same(tmp_path / "whole", folder)


def position(folder):
    note = json.loads(read_note((folder / STATE).read_bytes()))
    return note["stage"], note["epoch"], note["step"]


@pytest.mark.parametrize("event", ["before the border is saved", "after it", "after the next best"])
def test_killed_around_a_border_it_ends_with_the_same_bits(event, whole, tmp_path, monkeypatch):
    """The process ends at the very write in question, of a run whose second stage begins after epoch 2."""
    folder = tmp_path / "run"
    write = Run.replace

    def replace(run, name, content):
        stage = json.loads(read_note(content))["stage"] if name == STATE else None
        if event == "before the border is saved" and stage == 1:
            raise Killed
        write(run, name, content)
        if event == "after it" and stage == 1:
            raise Killed
        if event == "after the next best" and name == BEST and len(run.metrics()) == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Run, "replace", replace)
        with pytest.raises(Killed):
            train(folder, staged())
    assert len(Run.open(folder).metrics()) == 2
    train(folder)
    same(whole[0], folder)


class Killed(BaseException):
    """In place of a signal, at an exact place."""


def read_note(content):
    size = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["ndstack"])["note"]


def test_more_epochs_are_for_the_last_stage(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    change_settings(tmp_path / "run", {"training": {"max_epochs": 5}})
    train(tmp_path / "run")
    # From the beginning, stages that took over the last one's limit would have more epochs, too.
    given = [stage.model_dump() for stage in staged().training.stages]
    train(tmp_path / "long", staged(training={"max_epochs": 5, "stages": given}))
    same(tmp_path / "run", tmp_path / "long")
    with pytest.raises(TrainingError, match=r"training\.stages is .* now, but the run started with"):
        change_settings(tmp_path / "run", {"training": {"stages": []}})


def test_the_best_epoch_is_of_the_last_stage():
    history = [
        {"epoch": 1, "stage": 1, "validation_cross_entropy": 0.1},
        {"epoch": 2, "stage": 2, "validation_cross_entropy": 0.9},
        {"epoch": 3, "stage": 2, "validation_cross_entropy": 0.8},
    ]
    assert best_epoch(history)["epoch"] == 3
    assert stage_borders(history) == [1.5]
    assert stage_borders([{"epoch": 1}, {"epoch": 2}]) == []


def test_runs_without_stages_are_written_as_before(tmp_path):
    train(tmp_path / "run", small_config("lstm", training={"max_epochs": 1}))
    assert "stage" not in (tmp_path / "run" / METRICS).read_text()
    assert small_config().model_dump(exclude_defaults=True)["training"].keys() == {
        "max_epochs",
        "threads",
        "device",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training": {"stages": [{"lengths": (5, 3)}]}}, "5 to 3 given, expected a range"),
        ({"training": {"stages": [{"lenghts": (3, 5)}]}}, "lengths: Field required"),
        ({"training": {"stages": [{"lengths": (3, 5), "epochs": 2}]}}, "did you mean max_epochs"),
        ({"corpus": {"folder": "x"}, "training": {"stages": STAGES}}, "for a run on text"),
    ],
)
def test_wrong_stages_are_refused(settings, message):
    with pytest.raises(TrainingError, match=message):
        small_config(**settings)


def test_a_stage_without_strings_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TrainingError, match=r"marked-reversal has no strings of lengths 4\.\.4"):
        train(tmp_path / "run", small_config(training={"stages": [{"lengths": (4, 4)}]}))
    assert not (tmp_path / "run").exists()


def test_another_task_has_no_stages():
    config = TrainingConfig(stages=staged().training.stages)
    model = models.build("lstm", get("dyck"))
    with pytest.raises(TrainingError, match="no data set of a formal language"):
        fit(model, object(), config)


def test_a_state_from_before_there_were_stages_is_resumed(tmp_path):
    config = small_config("lstm")
    train(tmp_path / "whole", config)
    train(tmp_path / "old", small_config("lstm", training={"max_epochs": 1}))
    tensors, note = read_tensors(tmp_path / "old" / STATE)
    old = json.loads(note)
    del old["stage"]
    (tmp_path / "old" / STATE).write_bytes(pack_tensors(tensors, json.dumps(old)))
    change_settings(tmp_path / "old", {"training": {"max_epochs": 3}})
    train(tmp_path / "old")
    same(tmp_path / "whole", tmp_path / "old")
