"""Random weights of every kind through every kernel; `python -m benchmarks.no_nan` tries a million."""

import pytest
from benchmarks import no_nan


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_nan_and_readings_are_distributions(first, monkeypatch):
    monkeypatch.setattr(no_nan, "BATCH", 50)
    found = {number: no_nan.faults(no_nan.Trial(number)) for number in range(first, first + 20)}
    assert not {number: faults for number, faults in found.items() if faults}
