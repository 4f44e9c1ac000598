"""Some of what `python -m tests.fuzz_states` does."""

import pytest

from tests.fuzz_states import supervise


@pytest.mark.compiled
def test_no_forged_state_does_harm():
    tally, failures = supervise(seed=16, count=60)
    assert not failures
    outcomes = " ".join(tally)
    assert "success" in outcomes
    assert "refused" in outcomes
