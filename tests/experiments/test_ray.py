"""The Ray engine with two real nodes on this machine, one of which is killed in the middle of its trials."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ndstack.errors import NdstackError
from ndstack.experiments import Inline, SweepFolder, expand, run_sweep
from ndstack.experiments.engines.ray import OWN, Ray
from ndstack.experiments.engines.ray_task import ChangedFiles, read_files, run_remote_job, write_files
from ndstack.experiments.jobs import Job, JobOutcome

pytest.importorskip("ray")


def test_two_nodes_share_a_sweep_and_one_is_killed(small, tmp_path):
    """In a process of its own: Ray warns, and leaves threads and sockets behind."""
    settings = small.settings | {
        "data": small.settings["data"] | {"train": 60},
        "training": {"max_epochs": 120, "stop_after": 120, "device": "cpu"},
    }
    experiment = small.model_copy(update={"settings": settings})
    (tmp_path / "experiment.json").write_text(experiment.model_dump_json())
    environment = os.environ | {
        **OWN,
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
        "RAY_ENABLE_METRICS_COLLECTION": "0",
        "OMP_NUM_THREADS": "1",
        "COVERAGE_PROCESS_CONFIG": "",  # Ray has many processes, and would be too slow if they were measured
    }
    script = Path(__file__).with_name("two_nodes.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    folder, trials = SweepFolder(tmp_path / "out"), expand(experiment)
    lost = [e["trial"] for e in events if e["state"] == "again"]
    assert lost, "the killed node had no trial"
    logs = [(tmp_path / "out" / "trials" / name / "log.txt").read_text() for name in lost]
    assert all(
        int(log.rpartition("start at epoch ")[2].split(",")[0]) > 1 for log in logs
    )  # not from the start
    assert sorted(e["trial"] for e in events if e["state"] == "done") == sorted(t.id for t in trials)
    whole = SweepFolder(tmp_path / "whole")
    whole.begin(experiment, "paper", None)
    run_sweep(whole, trials, Inline(), measures=("test",))
    for trial in trials:
        names = {path.name for path in folder.trial(trial).rglob("*") if path.is_file()}
        assert {"result.json", "test.json", "state.safetensors", "times.jsonl", "log.txt"} <= names
        for name in ("metrics.jsonl", "best.safetensors", "test.json"):
            assert (folder.trial(trial) / name).read_bytes() == (whole.trial(trial) / name).read_bytes()


def test_parcels_carry_what_is_new_and_nothing_else(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write_files(here, {"config.json": b"{}", "last/state.safetensors": b"1", "best.safetensors": b"2"})
    sender = ChangedFiles(here, {})
    first = sender.read()
    assert next(iter(first)) == "last/state.safetensors"
    write_files(there, first)
    assert read_files(there) == read_files(here)
    assert sender.read() == {}
    write_files(here, {"last/state.safetensors": b"3"})
    (here / ".lock").write_bytes(b"")
    assert sender.read() == {"last/state.safetensors": b"3"}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "last/../../x", ".lock", "deep/er/x"])
def test_parcels_write_nowhere_else(name, tmp_path):
    with pytest.raises(NdstackError, match="expected one of a run folder"):
        write_files(tmp_path / "trial", {name: b""})
    assert not (tmp_path / "x").exists()


def test_a_trial_elsewhere_sends_its_folder_piece_by_piece(small, tmp_path):
    trial = expand(small)[0]
    job = Job(id=trial.id, folder="/nowhere", config=trial.config, measure=("test",))
    files = list(run_remote_job(job.model_dump_json().encode(), {}, every=0))
    assert [outcome for _, outcome in files[:-1]] == [b""] * (len(files) - 1)
    assert JobOutcome.model_validate_json(files[-1][1]) == JobOutcome(id=trial.id, state="done")
    for contents, _ in files:
        write_files(tmp_path / trial.id, contents)
    whole = SweepFolder(tmp_path / "whole")
    whole.begin(small, "paper", None)
    run_sweep(whole, [trial], Inline(), measures=("test",))
    for name in ("metrics.jsonl", "best.safetensors", "test.json"):
        assert (tmp_path / trial.id / name).read_bytes() == (whole.trial(trial) / name).read_bytes()
    done = read_files(tmp_path / trial.id)
    assert list(run_remote_job(job.model_dump_json().encode(), done, every=0))[1:] == [({}, files[-1][1])]


def test_an_address_without_a_cluster_is_an_error_in_one_line():
    with pytest.raises(NdstackError, match=r"no Ray at 127\.0\.0\.1:1: Connection refused; start it with"):
        Ray("127.0.0.1:1").__enter__()


def test_only_addresses_on_the_cluster_itself():
    with pytest.raises(NdstackError, match="expected auto or HOST:PORT"):
        Ray("ray://127.0.0.1:10001").__enter__()


class Pretended:
    """A cluster of which only the size matters, and a task that never yields an outcome."""

    exceptions = SimpleNamespace(RayError=OSError)

    def __init__(self, **resources):
        self.resources, self.down, self.options, self.cancelled = resources, False, None, []

    def init(self, **options):
        self.options = options
        if "CPU" not in self.resources:
            raise ConnectionError("nobody\nthere")

    def remote(self, **needs):
        return lambda function: SimpleNamespace(remote=lambda *arguments: iter([({}, b"")]))

    def wait(self, streams, num_returns, timeout):
        return streams[:num_returns], []

    def get(self, value):
        return value

    def cancel(self, stream, force):
        self.cancelled.append(stream)

    def cluster_resources(self):
        return self.resources

    def shutdown(self):
        self.down = True


def test_as_many_trials_as_there_is_room_for():
    for cpus, gpus, room in [(1, 0, 8), (3, 0, 2), (1, 0.5, 4), (4, 0.25, 2)]:
        engine = Ray("auto", cpus=cpus, gpus=gpus)
        engine._ray = Pretended(CPU=8.0, GPU=2.0)
        assert engine.slots() == room
    engine = Ray("auto", gpus=1)
    engine._ray = Pretended(CPU=8.0)
    with pytest.raises(NdstackError, match="a trial takes 1 GPUs, but the cluster has 0"):
        engine._check_room()
    assert engine._ray.down


def test_a_ray_of_our_own_is_this_machine_alone(small, tmp_path, monkeypatch):
    for name in OWN:
        monkeypatch.delenv(name, raising=False)
    trial = expand(small)[0]
    job = Job(id=trial.id, folder=str(tmp_path), config=trial.config)
    engine = Ray(workers=3, cpus=0)
    assert all(os.environ[name] == value for name, value in OWN.items())
    engine._ray = cluster = Pretended(CPU=8.0)
    with engine:
        assert cluster.options["address"] == "local"
        assert cluster.options["num_cpus"] == engine.slots() == 3
        engine.submit(job)
        (lost,) = engine.poll(0)
        assert (lost.id, lost.message) == (trial.id, "its task ended without an outcome")
        assert engine.poll(0) == []
        engine.submit(job)
    assert cluster.down
    assert len(cluster.cancelled) == 1
    engine._ray = Pretended()
    with pytest.raises(NdstackError, match="no Ray at this machine: nobody there"):
        engine.__enter__()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NdstackError, match="--engine ray needs the package ray"):
        Ray("auto")
