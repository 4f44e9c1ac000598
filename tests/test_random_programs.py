"""Some random programs (`python -m tests.random_programs` runs many), and a process that dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs.checking import run
from tests.programs.drawing import draw
from tests.random_programs import Worker

AUTOCAST = False
"""Under autocast, controllers other than the LSTM do not work yet."""


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_programs_give_what_whole_sequences_give(first):
    for seed in range(first, first + 10):
        program = draw(seed, autocast=AUTOCAST)
        fault = run(program)
        assert fault is None, f"{fault}\n{program.listing()}"


def test_a_seed_is_one_program():
    assert draw(17) == draw(17)
    assert draw(17) != draw(18)
    assert "steps from 0" in draw(0).listing()


def test_a_process_that_dies_is_the_fault_of_its_program():
    worker = Worker(autocast=False)
    worker.process.kill()
    worker.process.wait()
    assert "ended with code -9" in worker.ask(5, 60)["fault"]
    worker.end()


LAUNCHER = """
import subprocess, time
from tests.random_programs import Worker

worker = Worker(autocast=False)
pipe = worker.process.stdin.fileno()
keeper = subprocess.Popen(["sleep", "300"], pass_fds=[pipe], stdout=subprocess.DEVNULL)
print(worker.process.pid, keeper.pid, flush=True)
time.sleep(300)
"""
"""Another process keeps the worker's input open, so that the worker does not end for want of programs."""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_ends_with_a_killed_launcher():
    root = Path(__file__).parents[1]
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=root, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    with launcher:
        worker, keeper = map(int, launcher.stdout.readline().split())
        try:
            _wait_until(lambda: "libtorch" in _text(f"/proc/{worker}/maps"))  # ndstack was imported before
            launcher.kill()
            _wait_until(lambda: " Z " in (stat := _text(f"/proc/{worker}/stat")) or not stat, patience=20.0)
        finally:
            for process in (worker, keeper):
                if _text(f"/proc/{process}/stat"):
                    os.kill(process, signal.SIGKILL)


def _text(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _wait_until(condition, patience=120.0):
    ends = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < ends, "nothing happened"
        time.sleep(0.1)
