"""Without transformers there is nothing to test here."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("transformers") else ["test_*.py"]


@pytest.fixture(autouse=True)
def quiet():
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
