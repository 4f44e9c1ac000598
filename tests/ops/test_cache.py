"""Compiled code is not used when a source has changed that it was made of."""

import importlib
import shutil

import pytest

from ndstack.ops.runtime.compiling import HERE, source_stamp, sources

NONDETERMINISTIC = HERE / "ops" / "nondeterministic" / "cpu"


@pytest.mark.parametrize(
    "module",
    ["ops.nondeterministic.cpu.scan_loops", "ops.fused.nondeterministic_loops", "ops.superposition.loops"],
)
def test_entries_know_all_their_sources(module):
    loaded = importlib.import_module(f"ndstack.{module}")
    entries = [value for value in vars(loaded).values() if hasattr(value, "_cache")]
    if not entries:
        pytest.skip("compilation is switched off")
    for entry in entries:
        path = HERE.joinpath(*entry.py_func.__module__.split(".")[1:]).with_suffix(".py")
        if hasattr(entry._cache, "_impl"):
            assert entry._cache._impl.locator.get_source_stamp() == source_stamp(path)


def test_a_change_of_any_source_counts(tmp_path):
    loops = NONDETERMINISTIC / "scan_loops.py"
    own = sources(loops)
    names = {path.relative_to(HERE / "ops").as_posix() for path in own}
    assert {
        "nondeterministic/cpu/forward.py",
        "nondeterministic/cpu/lost_mass.py",
        "runtime/simd.py",
    } <= names
    assert "superposition/loops.py" not in names
    for path in own:
        copy = tmp_path / path.relative_to(HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    stamped = tmp_path / loops.relative_to(HERE)
    assert source_stamp.__wrapped__(stamped, tmp_path) == source_stamp(loops)
    for path in own:
        copy = tmp_path / path.relative_to(HERE)
        copy.write_bytes(path.read_bytes() + b"\n")
        assert source_stamp.__wrapped__(stamped, tmp_path) != source_stamp(loops), path
        copy.write_bytes(path.read_bytes())
