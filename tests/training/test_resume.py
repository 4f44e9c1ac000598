"""A run that is interrupted, killed or damaged goes on exactly, or says what is wrong."""

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from ndstack import files
from ndstack.errors import NdstackError, TrainingError
from ndstack.settings.data import CorpusConfig
from ndstack.training import Run, make_model, train
from ndstack.training.material import language_of
from ndstack.training.run import BEST, CONFIG, METRICS, STATE
from tests.training.small import small_config, small_run

FORK = multiprocessing.get_context("fork")


def start(folder, config=None):
    process = FORK.Process(target=train, args=(folder, config))
    process.start()
    return process


def same(one, two):
    assert (one / METRICS).read_bytes() == (two / METRICS).read_bytes()
    assert (one / BEST).read_bytes() == (two / BEST).read_bytes()
    assert (one / STATE).read_bytes() == (two / STATE).read_bytes()


@pytest.mark.parametrize("name", ["rns-2-2", "tf+sup-4"])  # the second with dropout
def test_killed_at_random_moments_it_ends_with_the_same_bits(name, tmp_path):
    config = small_config(name, data={"train": 600}, training={"checkpoint_seconds": 0.0})
    train(tmp_path / "whole", config)
    rng, kills, folder = random.Random(7), 0, tmp_path / "killed"
    process = start(folder, config)
    while kills < 5:
        if not (folder / STATE).exists():
            time.sleep(0.01)
            continue
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        process.join()
        kills += 1
        unfinished = len(Run.open(folder).metrics()) < 3
        assert unfinished, "the run was over before five kills: make it longer"
        process = start(folder)
        time.sleep(0.1)
    process.join()
    assert process.exitcode == 0
    same(tmp_path / "whole", folder)


def test_an_interrupt_saves_the_step_it_comes_in(tmp_path):
    config = small_config("lstm", data={"train": 3000}, training={"checkpoint_seconds": 1e6})
    train(tmp_path / "whole", config)
    process = start(tmp_path / "run", config)
    while not (tmp_path / "run" / "log.txt").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert "interrupted in epoch" in (tmp_path / "run" / "log.txt").read_text()
    train(tmp_path / "run")
    same(tmp_path / "whole", tmp_path / "run")


def test_the_command_is_interrupted_and_resumed(tmp_path):
    command = [sys.executable, "-m", "ndstack", "train"]
    new = [*command, "dyck", "--model", "lstm", "--out", "run", "--lengths", "4:8", "--max-epochs", "40"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(new, cwd=tmp_path, text=True, **pipes) as process:
        assert json.loads(process.stdout.readline())["epoch"] == 1
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130
    assert error == "ndstack: interrupted; resume with: ndstack train --resume run\n"
    again = [*command, "--resume", "run", "--max-epochs", "3"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["epochs"] == 3


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = small_run(tmp_path / "run", "lstm")
    before = (tmp_path / "run" / STATE).read_bytes()
    assert train(tmp_path / "run") == first
    assert (tmp_path / "run" / STATE).read_bytes() == before


def test_a_folder_in_use_is_refused(tmp_path):
    small_run(tmp_path / "run", "lstm")
    with (
        files.locked(tmp_path / "run"),
        pytest.raises(NdstackError, match=f"in use by process {os.getpid()}"),
    ):
        train(tmp_path / "run")


def test_a_new_run_does_not_go_into_a_folder_with_something_in_it(tmp_path):
    small_run(tmp_path / "run", "lstm")
    with pytest.raises(TrainingError, match=r"--resume .* resumes it"):
        small_run(tmp_path / "run", "lstm")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(TrainingError, match="not empty: choose another folder"):
        small_run(tmp_path / "other", "lstm")


def test_a_folder_that_is_not_a_run(tmp_path):
    with pytest.raises(TrainingError, match=f"is not a run: it has no {CONFIG}"):
        train(tmp_path)


def test_a_full_disk_leaves_the_last_good_state(tmp_path, monkeypatch):
    config = small_config("lstm", training={"max_epochs": 4})
    whole = train(tmp_path / "whole", config)
    real, folder = os.fsync, tmp_path / "run"

    def full(handle):
        if (folder / METRICS).exists() and (folder / METRICS).read_text().count("\n") == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr("ndstack.files.os.fsync", full)
    with pytest.raises(TrainingError, match=r"No space left on device; what was saved before is intact"):
        train(folder, config)
    assert not [path for path in folder.rglob(".*safetensors*") if path.is_file()]
    monkeypatch.undo()
    assert train(folder) == whole
    same(tmp_path / "whole", folder)


@pytest.mark.parametrize("name", [STATE, BEST])
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-3] + b"\0\1\2", lambda b: b""])
def test_damaged_files_get_one_line(name, damage, tmp_path):
    small_run(tmp_path / "run", "lstm")
    path = tmp_path / "run" / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(NdstackError, match="damaged") as error:
        train(tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "old, new", [('"learning_rate": 0.005', '"learning_rate": 0.01'), ('"train": 60', '"train": 70')]
)
def test_a_changed_configuration_is_noticed(old, new, tmp_path):
    small_run(tmp_path / "run", "lstm")
    path = tmp_path / "run" / CONFIG
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(TrainingError, match="another configuration or model"):
        train(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "ndstack run 9"}', '{"language": 3}'])
def test_a_configuration_that_is_none(text, tmp_path):
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(TrainingError, match="is not a run's configuration") as error:
        train(tmp_path)
    assert "\n" not in str(error.value)


def test_a_run_tells_what_it_cannot_do_yet(tmp_path):
    run = Run.create(tmp_path / "run", small_config("lstm"))
    with pytest.raises(TrainingError, match="appears after the first epoch"):
        run.load()
    (run.folder / "log.txt").mkdir()
    with pytest.raises(TrainingError, match=r"cannot write .*log\.txt: Is a directory; what was saved"):
        run.log("something")
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="cannot make a run in"):
        Run.create(tmp_path / "file" / "run", small_config("lstm"))


def test_models_made_in_python_and_runs_on_text_are_not_made_again():
    config = small_config("lstm")
    with pytest.raises(TrainingError, match="made in Python"):
        make_model(config.model_copy(update={"model": None}), language_of(config))
    on_text = config.model_copy(update={"corpus": CorpusConfig(folder="/c", sha256={})})
    with pytest.raises(TrainingError, match="use the commands of ndstack text"):
        language_of(on_text)
