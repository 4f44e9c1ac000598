"""Without transformers there is nothing to test here."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("transformers") else ["test_hf.py"]
