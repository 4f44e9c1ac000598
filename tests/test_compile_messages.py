"""Compiling for a while says so; from the cache, or within a moment, nothing is said."""

import json
import logging
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ndstack.ops.runtime import compile_messages
from tests.commands import ndstack


@pytest.fixture
def listener(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "ndstack")  # commands with --quiet in this process have raised it
    monkeypatch.setattr(compile_messages, "PATIENCE", 0.05)
    monkeypatch.setattr(compile_messages, "COMPILED", [])
    return compile_messages.Listener()


def compilation(module="ndstack.ops.nondeterministic.cpu.scan_loops", place="/cache"):
    function = SimpleNamespace(__module__=module, __name__="forward")
    return SimpleNamespace(py_func=function, _cache=SimpleNamespace(cache_path=place))


def run(listener, seconds, **what):
    dispatcher = compilation(**what)
    listener.started(dispatcher)
    listener.started(dispatcher)  # a function that it calls
    time.sleep(seconds)
    listener.ended(dispatcher)
    listener.ended(dispatcher)
    time.sleep(0.1)


def test_a_long_compilation_is_announced_once(listener, caplog):
    run(listener, 0.3)
    (record,) = caplog.records
    assert record.name == "ndstack"
    assert "compiling scan_loops.forward for this machine" in record.getMessage()
    assert "kept in /cache" in record.getMessage()
    assert "ndstack compile" in record.getMessage()
    assert [name for name, _ in compile_messages.COMPILED] == ["scan_loops.forward"]


def test_short_and_foreign_ones_are_not(listener, caplog):
    run(listener, 0)
    run(listener, 0.2, module="somebody.else")
    assert not caplog.records


def test_it_can_be_silenced(listener, caplog):
    logger = logging.getLogger("ndstack")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        run(listener, 0.2)
    finally:
        logger.setLevel(level)
    assert not caplog.records


@pytest.mark.compiled
def test_numba_tells_us(tmp_path):
    """In a process of its own: a compilation that takes long writes a line on stderr, none on stdout."""
    program = """
import ndstack.ops.runtime.compile_messages
ndstack.ops.runtime.compile_messages.PATIENCE = 0.0
from ndstack.ops.runtime.compiling import compiler
@compiler()
def twice(x):
    return 2 * x
twice.py_func.__module__ = "ndstack.test"
assert twice(3) == 6
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("ndstack: compiling test.twice")


@pytest.mark.compiled
def test_the_command_compiles_what_is_missing_and_says_where():
    assert ndstack("compile", "sup-3").returncode == 0
    again = ndstack("compile", "sup-3", "--json")
    assert again.returncode == 0, again.stderr
    row = json.loads(again.stdout)
    assert row["models"] == ["sup-3"]
    assert row["compiled"] == []
    assert row["folder"]
    wrong = ndstack("compile", "sup")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("ndstack: error: there is no model called 'sup'")


def test_after_compiling_stacks_by_themselves_need_no_compiling():
    """Steps, whole sequences and functions, as controllers of other kinds and users take them."""
    assert ndstack("compile", "sup-3").returncode == 0
    program = """
import torch
from ndstack.nn import StackRNN
from ndstack.stacks import Superposition
from ndstack.ops.runtime import compile_messages
output, _ = StackRNN(2, 3, Superposition(5), controller="gru")(torch.randn(2, 4, 2))
output.sum().backward()
stack = Superposition(4)
actions, pushed = torch.randn(2, 5, 3, requires_grad=True), torch.randn(2, 5, 4)
stack.scan(actions, pushed)[0].sum().backward()
stack.step(stack.start(2), actions[:, 0], pushed[:, 0]).reading.sum().backward()
print(compile_messages.COMPILED)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_former_name_of_the_command_still_works():
    shown = ndstack("warmup", "--help")
    assert shown.returncode == 0
    assert "Compile the kernels" in shown.stdout
    assert "warmup" not in ndstack("--help").stdout
