"""Random and damaged input for every reader; `make fuzz` tries more."""

import pytest

import tests.fuzz_targets  # noqa: F401
from tests.fuzz import TARGETS, run


@pytest.mark.parametrize("name", TARGETS)
def test_success_or_an_error_of_one_line(name):
    run(name, 40, fixed=True)
