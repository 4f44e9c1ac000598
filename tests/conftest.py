import os

import numba
import torch
from hypothesis import HealthCheck, settings

from tests.uncompiled import replace_intrinsics

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.register_profile("few", settings.get_profile("fixed"), max_examples=10)  # `make coverage`
settings.load_profile("fixed")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anybody imports triton

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    replace_intrinsics()

    def pytest_configure(config):
        """Compiled code does not warn of infinities and nans; numpy would."""
        config.addinivalue_line(
            "filterwarnings", "ignore:(invalid|overflow|divide).*encountered:RuntimeWarning"
        )
