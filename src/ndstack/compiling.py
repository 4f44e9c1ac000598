"""How functions are compiled: by numba, once, the machine code being kept on disk if there is a place for it.

numba looks for such a place beside the source file, then in the user's cache folder; the environment
variable NUMBA_CACHE_DIR names another one. Where none can be written to, it would refuse to compile.

It compiles again when that file changes. But compiled code also holds functions of other files, and changes
there go unnoticed: after an upgrade, old kernels would run. So here all compiled code of the package is made
anew when any of its sources changes.
"""

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

from ndstack import waiting

HERE = Path(__file__).resolve().parent
MARKS = (b"import numba", b"_numba import", b"compiling import", b"cpu_simd import")
LOCATORS = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")


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


def sources(folder: Path = HERE) -> list[Path]:
    """The files with compiled functions: they import one of `MARKS`."""
    found = ((path, path.read_bytes()) for path in sorted(folder.rglob("*.py")))
    return [path for path, content in found if any(mark in content for mark in MARKS)]


def source_stamp(folder: Path = HERE) -> bytes:
    """A checksum of all sources with compiled functions."""
    digest = hashlib.sha256()
    for path in sources(folder):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


def _watching(base: Any, stamp: bytes) -> Any:
    """A way to find the place of compiled code, for this package alone, that knows all its sources."""

    class Locator(base):  # type: ignore[misc]
        def get_source_stamp(self) -> bytes:
            return stamp

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            own = HERE in Path(file).resolve().parents
            return super().from_function(function, file) if own else None

    return Locator


def _watch_sources() -> None:
    """Make numba do so; versions of it that keep compiled code in another way are left as they are."""
    known: list[Any] | None = getattr(getattr(caching, "CacheImpl", None), "_locator_classes", None)
    bases = [getattr(caching, name, None) or getattr(caching, f"_{name}", None) for name in LOCATORS]
    if known is not None and all(bases):
        stamp = source_stamp()
        known[:0] = [_watching(base, stamp) for base in bases]


_watch_sources()
waiting.watch()
