"""Two processes share every batch and get what one gets, up to the order of sums."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ndstack.errors import TrainingError
from ndstack.settings.training import TrainingConfig
from ndstack.training import Run, Share, change_settings, train
from ndstack.training.launch import make_fabric
from ndstack.training.material import make_formal
from tests.test_processes import wait_for_end
from tests.training.small import small_config, small_run


def test_shares_are_disjoint_and_complete():
    for count in range(12):
        for processes in range(1, 5):
            parts = [list(range(count))[Share(rank, processes).of(count)] for rank in range(processes)]
            assert [one for part in parts for one in part] == list(range(count))


def test_two_processes_interrupted_give_the_result_of_one(tmp_path):
    data = {"train": 22, "batch_size": 3}  # the last batch is one string: a process has nothing to do
    one = small_run(tmp_path / "one", data=data)
    small_run(tmp_path / "two", data=data, training={"processes": 2, "max_epochs": 2})
    change_settings(tmp_path / "two", {"training": {"max_epochs": 3}})
    two = train(tmp_path / "two")
    for mine, theirs in zip(two.history, one.history, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    best = [Run.open(tmp_path / name).load().state_dict() for name in ("one", "two")]
    for name, tensor in best[0].items():
        assert best[1][name].sub(tensor).abs().max() < 1e-3


def test_an_error_in_one_process_is_one_line(tmp_path):
    with pytest.raises(TrainingError, match=r"in epoch 1, step .*; try a lower learning rate") as error:
        small_run(tmp_path / "run", "lstm", training={"processes": 2, "learning_rate": 1e38})
    assert "\n" not in str(error.value)


def children(process):
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_what_ends_the_first_process_ends_the_others_and_the_run_is_resumed(tmp_path):
    command = [sys.executable, "-m", "ndstack", "train"]
    new = ["dyck", "--model", "lstm", "--out", "run", "--lengths", "4:8", "--train", "200"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen([*command, *new, "--processes", "2"], **pipes) as launcher:
        assert json.loads(launcher.stdout.readline())["epoch"] == 1
        started = children(launcher.pid)
        launcher.send_signal(signal.SIGTERM)  # it alone, not its group: it has to pass the signal on
        _, error = launcher.communicate()
    assert error.splitlines()[-1] == "ndstack: interrupted; resume with: ndstack train --resume run"
    assert "Traceback" not in error
    assert launcher.returncode == 130
    assert "interrupted in epoch" in (tmp_path / "run" / "log.txt").read_text()
    wait_for_end(*started)
    with subprocess.Popen([*command, "--resume", "run"], **pipes) as launcher:
        assert json.loads(launcher.stdout.readline())["epoch"] > 1
        started = children(launcher.pid)
        assert len(started) >= 2
        launcher.kill()
        wait_for_end(*started)


def test_a_process_that_is_killed_is_one_line(tmp_path):
    with pytest.raises(
        TrainingError, match=r"process 1 of the run ended with SIGKILL; if memory is short"
    ) as error:
        train(tmp_path / "run", small_config("lstm", training={"processes": 2}), make=die)
    assert "\n" not in str(error.value)


def die(config, share, show):
    """What a kernel that is short of memory does."""
    if share.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return make_formal(config, share, show)


def test_there_are_no_more_processes_than_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = TrainingConfig(device="cuda", processes=3)
    with pytest.raises(TrainingError, match="--processes 3 given, expected at most 2 on CUDA, one per GPU"):
        make_fabric(config)
