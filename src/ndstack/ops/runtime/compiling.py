"""How functions are compiled: by numba, once, the machine code being kept on disk if there is a place for it.

numba looks for such a place beside the source file, then in the user's cache folder; the environment
variable NUMBA_CACHE_DIR names another one. Where none can be written to, it would refuse to compile.

numba compiles again when that file changes. But compiled code also holds functions and constants of other
files, whose changes would go unnoticed: after an upgrade, old kernels would run. So compiled code is
made anew when its own source changes or any source of this package that it imports, however indirectly.
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
from numba.core import caching

from ndstack.ops.runtime import waiting

HERE = Path(__file__).resolve().parents[2]
LOCATORS = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")
_IMPORT = re.compile(rb"^\s*from ndstack([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def compiler(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function when it is first called, with these flags of numba."""

    def compile_later(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **flags)(function)
        except RuntimeError:  # no place to keep it
            warnings.warn(
                "compiled kernels cannot be kept, so every process compiles them again: neither the "
                "installed package nor the user's cache folder can be written to; set NUMBA_CACHE_DIR",
                RuntimeWarning,
                stacklevel=1,
            )
            return numba.njit(**flags)(function)

    return compile_later


def sources(path: Path, folder: Path = HERE) -> list[Path]:
    """A source file of the package in this folder, and all that it imports from there."""
    found, waiting_for = {path}, [path]
    while waiting_for:
        new = set(_imported(waiting_for.pop(), folder)) - found
        found |= new
        waiting_for += new
    return sorted(found)


def _imported(path: Path, folder: Path) -> Iterator[Path]:
    for package, names in _IMPORT.findall(path.read_bytes()):
        room = folder.joinpath(*package.decode().split("."))
        candidates = [room, *(room / name for name in re.findall(r"\w+", names.decode()))]
        yield from filter(Path.is_file, (candidate.with_suffix(".py") for candidate in candidates))


@functools.cache
def source_stamp(path: Path, folder: Path = HERE) -> bytes:
    """A checksum of all sources that the compiled functions of a file may depend on."""
    digest = hashlib.sha256()
    for source in sources(path, folder):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(folder)} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


def _watching(base: Any) -> Any:
    """A way to find the place of compiled code, for this package alone, that knows all its sources."""

    class Locator(base):  # type: ignore[misc]
        def get_source_stamp(self) -> bytes:
            return source_stamp(self.source)

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            source = Path(file).resolve()
            found = super().from_function(function, file) if HERE in source.parents else None
            if found is not None:
                found.source = source
            return found

    return Locator


def _watch_sources() -> None:
    """Make numba do so; versions of it that keep compiled code in another way are left as they are."""
    known: list[Any] | None = getattr(getattr(caching, "CacheImpl", None), "_locator_classes", None)
    bases = [getattr(caching, name, None) or getattr(caching, f"_{name}", None) for name in LOCATORS]
    if known is not None and all(bases):
        known[:0] = [_watching(base) for base in bases]


_watch_sources()
waiting.watch()
