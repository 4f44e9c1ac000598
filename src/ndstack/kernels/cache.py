"""Compiled code on disk that is as new as all its sources.

numba keeps compiled code beside a source file, and compiles again when that file changes. But compiled code
also holds functions of other files, and changes there go unnoticed: after an upgrade, old kernels would run.
So all of this folder is compiled again when any of its files that have compiled functions changes. It is
enough to import this module first; `cpu_simd`, `linear_numba` and `memory_numba`, which all others need, do.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba.core import caching

HERE = Path(__file__).resolve().parent
LOCATORS = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")


def sources(folder: Path = HERE) -> list[Path]:
    """The files with compiled functions."""
    return sorted([*folder.glob("cpu_*.py"), *folder.glob("*_numba.py")])


def source_stamp(folder: Path = HERE) -> bytes:
    """A checksum of all sources with compiled functions."""
    digest = hashlib.sha256()
    for path in sources(folder):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


def _watching(base: Any, stamp: bytes) -> Any:
    """A way to find the place of compiled code, for this folder alone, that knows all its sources."""

    class Locator(base):  # type: ignore[misc]
        def get_source_stamp(self) -> bytes:
            return stamp

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            own = Path(file).resolve().parent == HERE
            return super().from_function(function, file) if own else None

    return Locator


def watch_sources() -> None:
    """Make numba do so; versions of it that keep compiled code in another way are left as they are."""
    known: list[Any] | None = getattr(getattr(caching, "CacheImpl", None), "_locator_classes", None)
    bases = [getattr(caching, name, None) or getattr(caching, f"_{name}", None) for name in LOCATORS]
    if known is not None and all(bases):
        stamp = source_stamp()
        known[:0] = [_watching(base, stamp) for base in bases]


watch_sources()
