# mypy: allow-untyped-calls
"""Compile the backward pass in a second process while this one compiles the forward pass.

numba compiles one function at a time per process. The first training step of a network needs two large ones,
forward and backward, so it would take twice as long as it has to. While the forward pass is being compiled, a
second process compiles the backward pass and leaves it in the cache on disk, where this process finds it.

    python -m ndstack.ops.runtime.beside MODULE DTYPE

compiles `backward` of a module for the arguments that its function `example_of_backward` returns.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import numba

from ndstack.ops.runtime import compile_messages, numba_internals
from ndstack.processes import cores, tied_children

_wanted: dict[str, str] = {}
"""Modules whose backward pass will be needed if their forward pass has to be compiled, and the dtype."""
_processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
"""What is being compiled, by module and dtype."""


def expect_backward(module: str, dtype: str) -> None:
    """Compile `backward` of this module beside `forward`, if `forward` is about to be compiled."""
    _wanted[module] = dtype


def wait_for_backward(module: str) -> None:
    """Wait until `backward` of this module is in the cache, if another process is compiling it."""
    _wanted.pop(module, None)
    for key in [key for key in _processes if key[0] == module]:
        _processes.pop(key).wait()


def _started(dispatcher: object) -> None:
    """A function is being compiled in this process."""
    function = getattr(dispatcher, "py_func", None)
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    dtype = _wanted.pop(module, None)
    kept = numba_internals.cache_folder(dispatcher) is not None
    if dtype is None or name != "forward" or not kept or cores() < 2 or (module, dtype) in _processes:
        return
    command = [sys.executable, "-m", "ndstack.ops.runtime.beside", module, dtype]
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError), tied_children():  # without it, this process compiles both
        _processes[module, dtype] = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)


class BarePackages:
    """A finder of the packages of operations that does not run their code.

    It imports torch, which takes two seconds; compiled loops need nothing but numba.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Return an empty package for a folder with an `__init__.py` within `ndstack.ops`."""
        places = [Path(folder, name.rpartition(".")[2]) for folder in path or ()]
        found = [str(place) for place in places if (place / "__init__.py").is_file()]
        if not found or not name.startswith("ndstack.ops."):
            return None
        bare = ModuleSpec(name, None, is_package=True)
        bare.submodule_search_locations = found
        return bare


def main(module: str, dtype: str) -> None:
    """Compile the backward pass of a module for one dtype; only for a process that does nothing else."""
    sys.meta_path.insert(0, BarePackages)
    loops = importlib.import_module(module)
    arguments = loops.example_of_backward(dtype)
    loops.backward.compile(tuple(numba.typeof(argument) for argument in arguments))


def _end() -> None:
    """End what nobody waits for any more."""
    for process in _processes.values():
        process.kill()
        process.wait()


compile_messages.LISTENERS.append(_started)
atexit.register(_end)

if __name__ == "__main__":
    main(*sys.argv[1:])
