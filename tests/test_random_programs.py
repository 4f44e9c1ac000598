"""Some random programs (`python -m tests.random_programs` runs many), and a process that dies."""

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
