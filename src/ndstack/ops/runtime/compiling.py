"""Compile functions with numba, once, and keep the machine code on disk where that is possible.

numba keeps the code beside the source file or in the user's cache folder; the environment variable
NUMBA_CACHE_DIR names another folder. Where none of them can be written to, every process compiles again.

By itself numba compiles a function again only when its file changes. Compiled code also contains functions
and constants of other files, so outdated code could run after an upgrade. Therefore code is compiled again
when its own source changes, or any source of this package that it imports, directly or indirectly.
"""

from __future__ import annotations

import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba

from ndstack.ops.runtime import compile_messages, numba_internals

HERE = Path(__file__).resolve().parents[2]
_IMPORT = re.compile(rb"^\s*from ndstack([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)

Compiled = Callable[..., Any]
"""A compiled function; numba infers the types of its arguments and of its result."""

Flag = bool | str | set[str] | type
Flags = dict[str, Flag]
"""Options of numba."""

_jit: Callable[..., Callable[[Compiled], Compiled]] = numba.njit
_HOW: Flags = {**numba_internals.compile_as_whole()}
numba_internals.trust_indices("ndstack.ops")


def compiler(**flags: Flag) -> Callable[[Compiled], Compiled]:
    """Return a decorator that compiles a function when it is first called, with these flags of numba."""

    def compile_later(function: Compiled) -> Compiled:
        try:
            return _jit(cache=True, **_HOW, **flags)(function)
        except RuntimeError:  # there is no folder to keep it in
            warnings.warn(
                "compiled kernels cannot be kept, so every process compiles them again: neither the "
                "installed package nor the user's cache folder can be written to; set NUMBA_CACHE_DIR",
                RuntimeWarning,
                stacklevel=1,
            )
            return _jit(**_HOW, **flags)(function)

    return compile_later


def internal(**flags: Flag) -> Callable[[Compiled], Compiled]:
    """Return a decorator for a function that only compiled functions call, and that is compiled with them."""
    return _jit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_HOW, **flags)


def loop(**flags: Flag) -> Callable[[Compiled], Compiled]:
    """Return a decorator for an internal loop that is worth full optimisation; it makes no arrays."""

    def compile_later(function: Compiled) -> Compiled:
        function.__dict__["llvm_attribute"] = "noinline"
        return internal(_nrt=False, **flags)(function)

    return compile_later


def sources(path: Path, folder: Path = HERE) -> list[Path]:
    """Return a source file of the package in this folder, and all that it imports from there."""
    found, unread = {path}, [path]
    while unread:
        new = set(_imported(unread.pop(), folder)) - found
        found |= new
        unread += new
    return sorted(found)


def _imported(path: Path, folder: Path) -> Iterator[Path]:
    for package, names in _IMPORT.findall(path.read_bytes()):
        room = folder.joinpath(*package.decode().split("."))
        candidates = [room, *(room / name for name in re.findall(r"\w+", names.decode()))]
        yield from filter(Path.is_file, (candidate.with_suffix(".py") for candidate in candidates))


@functools.cache
def source_stamp(path: Path, folder: Path = HERE) -> bytes:
    """Return a checksum of all sources that the compiled functions of a file may depend on."""
    digest = hashlib.sha256()
    for source in sources(path, folder):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(folder)} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


numba_internals.stamp_cache(HERE, source_stamp)
compile_messages.watch()
