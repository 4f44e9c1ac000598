from __future__ import annotations

import pytest

from ndstack.ops import stratification, superposition


@pytest.fixture(params=["compiled", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled operations and with those for other devices."""
    if request.param == "plain":
        for kernel in (stratification, superposition):
            monkeypatch.setattr(kernel, "compilable", lambda tensor: False)
    return str(request.param)
