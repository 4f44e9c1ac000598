"""Runs that start from the best parameters of another one."""

import shutil

import pytest

from ndstack.errors import TrainingError
from ndstack.nn.storage.files import read_tensors
from ndstack.training import Run, train
from ndstack.training.run import BEST, METRICS, STATE
from tests.training.small import small_config, small_run


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "short"
    small_run(folder)
    return folder


def first(folder):
    return read_tensors(folder / "snapshots" / "epoch-000.safetensors")[0]


def longer(source, **changes):
    settings = {
        "start_from": str(source),
        "seed": 5,
        "data": {"lengths": (9, 15)},
        "training": {"snapshots": 1},
    }
    return small_config(**{**settings, **changes})


def test_the_first_parameters_are_the_best_of_the_other_run(short, tmp_path):
    train(tmp_path / "run", longer(short))
    best = read_tensors(short / BEST)[0]
    mine = first(tmp_path / "run")
    assert mine.keys() == best.keys()
    assert all(mine[name].equal(best[name]) for name in best)
    assert Run.open(tmp_path / "run").config.start_from == str(short.resolve())


def test_in_another_precision(short, tmp_path):
    train(tmp_path / "run", longer(short, training={"snapshots": 1, "precision": "64", "max_epochs": 1}))
    best, mine = read_tensors(short / BEST)[0], first(tmp_path / "run")
    assert all(mine[name].equal(best[name].double()) for name in best)


def test_it_goes_on_without_the_other_run(short, tmp_path):
    shutil.copytree(short, tmp_path / "short")
    train(tmp_path / "run", longer(tmp_path / "short", training={"max_epochs": 1}))
    shutil.rmtree(tmp_path / "short")
    before = Run.open(tmp_path / "run")
    text = before.config.model_dump_json().replace('"max_epochs":1,', '"max_epochs":2,')
    before.replace("config.json", text)
    assert train(tmp_path / "run").epochs == 2


def test_stopped_before_the_first_step_it_still_starts_there(short, tmp_path):
    train(tmp_path / "whole", longer(short))
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for name in (STATE, BEST, METRICS):
        (tmp_path / "again" / name).unlink()
    train(tmp_path / "again")
    assert (tmp_path / "again" / BEST).read_bytes() == (tmp_path / "whole" / BEST).read_bytes()


def test_the_other_run_must_be_the_same_until_the_first_step(short, tmp_path):
    shutil.copytree(short, tmp_path / "short")
    train(tmp_path / "run", longer(tmp_path / "short", training={"max_epochs": 1}))
    (tmp_path / "run" / STATE).unlink()
    small_run(tmp_path / "other", seed=9)
    shutil.copy(tmp_path / "other" / BEST, tmp_path / "short" / BEST)
    with pytest.raises(TrainingError, match="has changed since the run started; start a new run"):
        train(tmp_path / "run")


@pytest.mark.parametrize(
    "changes", [{"model": "rns-2-2"}, {"options": {"hidden": 7}}, {"language": "marked-copy(k=3)"}]
)
def test_it_must_be_the_same_model(changes, short, tmp_path):
    with pytest.raises(TrainingError, match="has parameters of other names or sizes than"):
        train(tmp_path / "run", longer(short, **changes))
    assert not (tmp_path / "run").exists()


def test_it_must_be_a_run(tmp_path):
    with pytest.raises(TrainingError, match=r"nowhere is not a run: it has no config\.json"):
        train(tmp_path / "run", longer(tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()
