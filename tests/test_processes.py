"""Processes end with the one that started them; more than a machine has room for are refused or warned of."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ndstack import processes
from ndstack.errors import NdstackError
from ndstack.experiments import Local
from ndstack.training import train
from tests.training.small import small_config

LAUNCHER = """
import subprocess, sys, time
from ndstack import processes
with processes.tied_children():
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""
CHILD = "import ndstack, time; print(flush=True); time.sleep(600)"


def is_alive(process):
    """Whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def wait_for_end(*ids, seconds=60):
    until = time.monotonic() + seconds
    while (left := [one for one in ids if is_alive(one)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "kill"])
@pytest.mark.parametrize("before", ["", "import sys; sys.platform = 'darwin'; "], ids=["Linux", "macOS"])
def test_a_child_ends_with_its_parent_however_that_ends(end, before):
    command = [sys.executable, "-c", LAUNCHER, before + CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        child = int(launcher.stdout.readline())
        assert is_alive(child)
        launcher.send_signal(end)
    wait_for_end(child)


def test_a_child_whose_parent_has_ended_before_it_looks_ends_at_once():
    environment = os.environ | {processes.LAUNCHER: "999999999"}
    command = [sys.executable, "-c", "import ndstack, os; print(os.environ.get('NDSTACK_LAUNCHER'))"]
    orphan = subprocess.run(
        [*command, "--multiprocessing-fork"], env=environment, capture_output=True, text=True
    )
    assert (orphan.returncode, orphan.stdout, orphan.stderr) == (1, "", "")
    # Another command that runs meanwhile, started by something else, is none of ours.
    other = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (other.returncode, other.stdout) == (0, "None\n")


def test_the_environment_is_as_before(monkeypatch):
    with processes.tied_children():
        assert os.environ[processes.LAUNCHER] == str(os.getpid())
    assert processes.LAUNCHER not in os.environ
    monkeypatch.setenv(processes.LAUNCHER, "7")
    with processes.tied_children():
        pass
    assert os.environ[processes.LAUNCHER] == "7"


@pytest.fixture
def machine(monkeypatch):
    """Two cores, 8 GB that are free, and a process of 700 MB."""
    monkeypatch.setattr(processes, "cores", lambda: 2)
    monkeypatch.setattr(processes, "free_memory", lambda: 8 << 30)
    monkeypatch.setattr(processes, "own_memory", lambda: (1 << 30) - processes.COMPILING)


def test_more_than_the_memory_has_room_for_is_refused_in_one_line(machine, tmp_path, capsys):
    said = r"200 given: 200 processes need about 200\.0 GB .*1\.0 GB each.*8\.0 GB are free; use {} 2$"
    config = small_config("lstm", training={"processes": 200})
    with pytest.raises(NdstackError, match=said.format("--processes")):
        train(tmp_path / "run", config)
    with pytest.raises(NdstackError, match=said.format("--workers")):
        Local(200, tmp_path / "log")
    assert not list(tmp_path.iterdir())
    with pytest.raises(NdstackError, match="4 given"):
        processes.check_room(4, "--processes", parameters=1 << 30)
    assert processes.process_capacity() == 2
    assert processes.process_capacity(1 << 30) == 1
    assert capsys.readouterr().err == ""


def test_more_than_cores_are_warned_of_in_one_line(machine, capsys):
    processes.check_room(2, "--workers")
    assert capsys.readouterr().err == ""
    processes.check_room(8, "--workers")
    processes.check_threads(3)
    assert capsys.readouterr().err.splitlines() == [
        "ndstack: warning: --workers 8 given, but there are 2 cores, and more processes are not faster; use "
        "--workers 2",
        "ndstack: warning: --threads 3 given, but there are 2 cores, and more threads are not faster; use "
        "--threads 2",
    ]


def test_more_threads_than_can_be_started_are_refused(machine, tmp_path):
    with pytest.raises(NdstackError, match=r"--threads 20000 given, but there are 2 cores; use --threads 2$"):
        train(tmp_path / "run", small_config("lstm", training={"threads": 20_000}))
    assert not list(tmp_path.iterdir())


def test_memory_is_measured():
    assert 1 << 20 < processes.own_memory() < 1 << 40
    assert processes.free_memory() > 1 << 20


def test_a_container_leaves_less(monkeypatch):
    said = {
        "/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n",
        "/proc/self/cgroup": "12:cpu:/x\n5:memory:/box\n0::/\n",
        "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": "4096000\n",
        "/sys/fs/cgroup/memory/box/memory.usage_in_bytes": "3072000\n",
        "/sys/fs/cgroup/memory/box/memory.stat": "cache 5\ntotal_inactive_file 1024000\n",
        "/sys/fs/cgroup/memory.max": "max\n",
        "/sys/fs/cgroup/memory.current": "1\n",
    }
    monkeypatch.setattr(processes, "_read", lambda path: said.get(str(path), ""))
    assert processes.free_memory() == 2048000
    said["/sys/fs/cgroup/memory.max"] = "1001\n"
    assert processes.free_memory() == 1000
    said.clear()
    assert processes.free_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert processes.own_memory() > 1 << 20  # the most that it ever had
