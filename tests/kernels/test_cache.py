"""Compiled code is not used when a source has changed that it was made of."""

import shutil

from ndstack.compiling import HERE, source_stamp, sources
from ndstack.kernels import cpu_lstm, cpu_scan, cpu_step, superposition_numba


def test_entries_know_all_sources():
    entries = [cpu_scan.forward, cpu_scan.backward, cpu_step.forward, cpu_lstm.forward]
    entries += [value for value in vars(superposition_numba).values() if hasattr(value, "py_func")]
    for entry in entries:
        if hasattr(entry, "_cache"):  # not where compilation is switched off
            assert entry._cache._impl.locator.get_source_stamp() == source_stamp()


def test_any_change_counts(tmp_path):
    for path in sources():
        copy = tmp_path / path.relative_to(HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    assert source_stamp(tmp_path) == source_stamp()
    assert {"cpu_forward.py", "linear_numba.py", "inside_kernel.py"} <= {path.name for path in sources()}
    for path in sources():
        copy = tmp_path / path.relative_to(HERE)
        copy.write_bytes(path.read_bytes() + b"\n")
        assert source_stamp(tmp_path) != source_stamp()
        copy.write_bytes(path.read_bytes())
