"""Some random programs (`python -m tests.random_programs` runs many), and a process that dies."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs.checking import run
from tests.programs.drawing import draw
from tests.random_programs import Worker


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_programs_give_what_whole_sequences_give(first):
    for seed in range(first, first + 10):
        program = draw(seed)
        fault = run(program)
        assert fault is None, f"{fault}\n{program.listing()}"


@pytest.mark.compiled
def test_a_pop_that_uncovers_next_to_nothing_above_the_bottom():
    """Without the bottom fix, products with what nothing stands below overflowed, and times 0 became nan."""
    assert run(draw(4005034)) is None


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_ends_with_the_launcher_that_was_killed():
    script = """if True:
        from tests.random_programs import Worker
        worker = Worker(autocast=False)
        worker.ask(1, 3600)
        worker.process.stdin.write("".join(f"{seed}\\n" for seed in range(1000)))
        worker.process.stdin.flush()
        print(worker.process.pid, flush=True)
        input()
    """
    command = [sys.executable, "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=Path(__file__).parent.parent, text=True, **pipes) as launcher:
        worker = int(launcher.stdout.readline())
        launcher.kill()
    left, end = Path(f"/proc/{worker}"), time.monotonic() + 20
    while left.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not left.exists()
