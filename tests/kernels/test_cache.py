"""Compiled code is not used when a source has changed that it was made of."""

import shutil

from ndstack.kernels import cpu_lstm, cpu_scan, cpu_step
from ndstack.kernels.cpu_cache import HERE, source_stamp


def test_entries_know_all_sources():
    for entry in (cpu_scan.forward, cpu_scan.backward, cpu_step.forward, cpu_lstm.forward):
        if hasattr(entry, "_cache"):  # not where compilation is switched off
            assert entry._cache._impl.locator.get_source_stamp() == source_stamp()


def test_any_change_counts(tmp_path):
    sources = [*HERE.glob("cpu_*.py"), *HERE.glob("*_numba.py")]
    for path in sources:
        shutil.copy(path, tmp_path)
    assert source_stamp(tmp_path) == source_stamp()
    for path in sources:
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes() + b"\n")
        assert source_stamp(tmp_path) != source_stamp()
        copy.write_bytes(path.read_bytes())
