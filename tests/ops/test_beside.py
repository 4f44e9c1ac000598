"""The backward pass is compiled in a second process while the first one compiles the forward pass."""

import gc
import json
import os
import subprocess
import sys

import numba
import pytest
import torch

from ndstack.nn import StackRNN
from ndstack.ops.fused import nondeterministic_loops
from ndstack.processes import cores
from ndstack.stacks import Nondeterministic

LOOPS = """
import os
from ndstack.ops.runtime.compiling import compiler

@compiler()
def forward(x):
    return x + 1

@compiler()
def backward(x, factor):
    return x * factor

def example_of_backward(dtype):
    open("asked", "a").write(f"{dtype} {os.getpid()}")
    return 1.0, 2
"""
PROGRAM = """
import json, os, sys
import loops
from ndstack.ops.runtime import beside
if sys.argv[1] == "train":
    beside.expect_backward("loops", "float32")
answers = [loops.forward(1.0)]
beside.wait_for_backward("loops")
answers.append(loops.backward(3.0, 2))
hits = sum(loops.backward.stats.cache_hits.values())
print(json.dumps([answers, hits, os.getpid()]))
"""


def run(folder, mode):
    """Both answers, how often backward came from the cache, this process, and who was asked for examples."""
    (folder / "loops.py").write_text(LOOPS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    environment |= {"NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PROGRAM, mode]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    answers, hits, pid = json.loads(done.stdout)
    asked = folder / "asked"
    return answers, hits, pid, asked.read_text().split() if asked.exists() else []


@pytest.mark.compiled
@pytest.mark.skipif(cores() < 2, reason="needs two cores")
def test_backward_comes_from_another_process(tmp_path):
    answers, hits, pid, asked = run(tmp_path, "train")
    assert answers == [2.0, 6.0]
    assert hits == 1
    assert asked[0] == "float32"
    assert int(asked[1]) != pid
    assert run(tmp_path, "train")[3] == asked  # all is in the cache


def test_the_other_process_does_not_import_torch():
    """Which would take two of the fifteen seconds of a first training step."""
    program = (
        "import importlib, sys; from ndstack.ops.runtime import beside; "
        "sys.meta_path.insert(0, beside.BarePackages); "
        f"importlib.import_module({nondeterministic_loops.__name__!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.compiled
def test_without_derivatives_no_process_is_started(tmp_path):
    answers, hits, _, asked = run(tmp_path, "infer")
    assert (answers, hits, asked) == ([2.0, 6.0], 0, [])


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_example_has_the_types_of_a_training_step(dtype):
    network = StackRNN(2, 3, Nondeterministic(2, 2)).to(dtype)
    network(torch.zeros(2, 3, 2, dtype=dtype))[0].sum().backward()
    example = nondeterministic_loops.example_of_backward(str(dtype).removeprefix("torch."))
    types = tuple(numba.typeof(argument) for argument in example)
    backward = vars(nondeterministic_loops)["backward"]
    known = {tuple(str(kind) for kind in one) for one in backward.signatures}
    assert tuple(map(str, types)) in known
    assert len(known) <= 2
    assert gc.isenabled()
