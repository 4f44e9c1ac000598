"""Sweeps: stopped and continued, tried again or not, never twice."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ndstack import files
from ndstack.errors import BusyError, NdstackError
from ndstack.experiments import Experiment, Inline, Local, SweepFolder, Watcher, expand, run_sweep, sweep
from ndstack.experiments.engines import Lost
from ndstack.experiments.jobs import Job, JobOutcome, do_job, is_machine_fault, parse_job

SETTINGS = """
name = "kill"
languages = ["marked-reversal"]
restarts = 2
[[models]]
label = "LSTM"
names = ["lstm"]
[settings.data]
train = 20
validation = 10
test_per_length = 1
lengths = [6, 10]
test_lengths = [6, 12]
[settings.training]
max_epochs = 40
stop_after = 40
device = "cpu"
[[outputs]]
label = "curve"
kind = "curves"
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sweep, "PAUSE", 0.01)
    monkeypatch.setattr(sweep, "TICK", 0.2)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def begin(experiment, path):
    folder = SweepFolder(path)
    return folder, expand(folder.begin(experiment, "paper", None))


def trial_files(folder, trials, name):
    return {trial.id: (folder.trial(trial) / name).read_bytes() for trial in trials}


def heed_interrupts():
    """Also where the tests run in the background of a shell, which makes its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_stopped_sweep_goes_on_and_loses_and_repeats_nothing(stop, tmp_path):
    (tmp_path / "kill.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "ndstack", "sweep", "kill.toml", "--out", "out", "--workers", "1"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as driver:
        next(line for line in driver.stdout if json.loads(line)["event"] == "done")
        folder, trials = begin(Experiment.read(tmp_path / "kill.toml"), tmp_path / "out")
        second = folder.trial(trials[1])
        until = time.monotonic() + 30
        while not (second / "last" / "state.safetensors").exists() and time.monotonic() < until:
            time.sleep(0.01)
        driver.send_signal(stop)
        _, error = driver.communicate()
    resume = "ndstack sweep kill.toml --out out --workers 1"
    assert error == (f"ndstack: interrupted; resume with: {resume}\n" if stop == signal.SIGINT else "")
    assert driver.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    owner = int((second / files.LOCK).read_text())
    while Path(f"/proc/{owner}").exists() and time.monotonic() < until:
        time.sleep(0.01)  # the worker ends by itself
    assert not Path(f"/proc/{owner}").exists()
    done = [trial for trial in trials if folder.status(trial) == "done"]
    assert 1 <= len(done) < len(trials)
    before = {trial.id: (folder.trial(trial) / "result.json").stat().st_mtime_ns for trial in done}
    assert folder.status(trials[1]) == "begun"
    if stop == signal.SIGINT:
        assert "interrupted" in (second / "log.txt").read_text()

    summary = run_sweep(folder, trials, Inline(), measures=("test",))
    assert len(summary.done) == len(trials)
    assert before == {t.id: (folder.trial(t) / "result.json").stat().st_mtime_ns for t in done}
    logs = [(folder.trial(trial) / "log.txt").read_text() for trial in trials]
    assert all(log.count(" end: ") == 1 for log in logs)
    assert "start at epoch 1, step 1\n" not in logs[1].partition("\n")[2]
    whole, _ = begin(Experiment.read(tmp_path / "kill.toml"), tmp_path / "whole")
    run_sweep(whole, trials, Inline(), measures=("test",))
    for name in ("metrics.jsonl", "best.safetensors", "test.json"):
        assert trial_files(folder, trials, name) == trial_files(whole, trials, name)


def test_a_killed_worker_is_replaced_and_its_trial_tried_again(small, tmp_path):
    folder, trials = begin(small, tmp_path)
    engine = Local(1, folder.log)
    events = []

    class Killer(Watcher):
        def started(self, trial, attempt):
            if not events:
                engine._workers[0].process.kill()

        def ended(self, trial, state, message):
            events.append((trial.id, state, message))

    summary = run_sweep(folder, trials[:2], engine, watcher=Killer())
    assert [trial.id for trial in summary.done] == [trials[1].id, trials[0].id]
    assert events[0][:2] == (trials[0].id, "again")
    assert "SIGKILL" in events[0][2]


def test_one_driver_at_a_time(small, tmp_path):
    folder, trials = begin(small, tmp_path)
    with files.locked(tmp_path), pytest.raises(BusyError, match="in use by process"):
        run_sweep(folder, trials, Inline())


class Scripted(Inline):
    """Says what it is told to, and counts."""

    def __init__(self, script):
        super().__init__()
        self.script, self.tries = script, []

    def poll(self, timeout):
        job = self._waiting.pop(0)
        self.tries.append(job.id)
        return [self.script(job, self.tries.count(job.id))]


def test_faults_of_the_machine_are_tried_again_a_few_times_failures_are_not(small, tmp_path):
    folder, trials = begin(small, tmp_path)

    def script(job, attempt):
        number = [trial.id for trial in trials].index(job.id)
        if number == 0:
            return JobOutcome(id=job.id, state="failed", message="the loss is nan")
        if number == 1:
            return Lost(job.id, "its machine is gone")
        if number == 2 and attempt < 3:
            return JobOutcome(id=job.id, state="machine", message="No space left on device")
        return do_job(job)

    engine = Scripted(script)
    summary = run_sweep(folder, trials, engine)
    assert summary.failed == {trials[0].id: "the loss is nan"}
    assert summary.given_up == {trials[1].id: "its machine is gone"}
    assert {trial.id for trial in summary.done} == {trials[2].id, trials[3].id}
    assert [engine.tries.count(trial.id) for trial in trials] == [1, 3, 3, 1]

    again = Scripted(lambda job, attempt: do_job(job))
    summary = run_sweep(folder, trials, again)
    assert again.tries == [trials[1].id]
    assert summary.failed == {trials[0].id: "the loss is nan"}
    run_sweep(folder, trials, again, retry_failed=True)
    assert again.tries == [trials[1].id, trials[0].id]
    assert all(folder.status(trial) == "done" for trial in trials)


def job_of(trial, folder, **changes):
    training = trial.config.training.model_copy(update=changes)
    config = trial.config.model_copy(update={"training": training})
    return Job(id=trial.id, folder=str(folder), config=config)


def test_a_loss_that_is_not_a_number_is_the_trials_own_fault(small, tmp_path):
    job = job_of(expand(small)[0], tmp_path / "t", optimizer="sgd", learning_rate=1e38, clip=None)
    outcome = do_job(job)
    assert outcome.state == "failed"
    assert "try a lower learning rate" in outcome.message


def test_a_full_disk_is_not(small, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job = job_of(expand(small)[0], tmp_path / "t")
    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", full)
        assert do_job(job).state == "machine"
    assert do_job(job).state == "done"  # what was left there does no harm


def test_a_folder_in_use_is_not(small, tmp_path):
    job = job_of(expand(small)[0], tmp_path / "t")
    (tmp_path / "t").mkdir()
    with files.locked(tmp_path / "t"):
        outcome = do_job(job)
    assert outcome.state == "machine"
    assert "in use" in outcome.message


def test_a_complete_trial_is_measured_later_without_training_again(small, tmp_path):
    folder, trials = begin(small, tmp_path)
    run_sweep(folder, trials[:1], Inline())
    path = folder.trial(trials[0])
    assert not (path / "test.json").exists()
    log = (path / "log.txt").read_text()
    run_sweep(folder, trials[:1], Inline(), measures=("test",))
    assert (path / "test.json").exists()
    assert (path / "log.txt").read_text().count("start at epoch 1,") == log.count("start at epoch 1,") == 1


def test_memory_that_gave_out_is_the_machines_fault():
    error = ValueError("no batch")
    assert not is_machine_fault(error)
    error.__cause__ = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    assert is_machine_fault(error)


def test_what_is_not_a_job_or_not_json_is_refused(tmp_path):
    with pytest.raises(NdstackError, match="not a job: id"):
        parse_job(b"{}")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(NdstackError, match=r"x\.json is not JSON"):
        files.read_json(tmp_path / "x.json")


def test_sigterm_stops_a_sweep_like_ctrl_c(small, tmp_path):
    folder, trials = begin(small, tmp_path)

    class Ended(Watcher):
        def started(self, trial, attempt):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(folder, trials, Inline(), watcher=Ended())
    assert signal.getsignal(signal.SIGTERM) is before
    assert folder.status(trials[0]) != "done"


def test_a_sweep_runs_in_a_thread_as_well(small, tmp_path):
    folder, trials = begin(small, tmp_path)
    thread = threading.Thread(target=run_sweep, args=(folder, trials[:1], Inline()))
    thread.start()
    thread.join()
    assert folder.status(trials[0]) == "done"


def test_no_workers_are_too_few(tmp_path):
    with pytest.raises(NdstackError, match="0 workers given"):
        Local(0, tmp_path / "log")
