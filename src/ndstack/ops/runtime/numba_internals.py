# mypy: allow-untyped-calls
"""Everything that ndstack uses of numba without numba's promise to keep it (see also `torch_internals`).

Each function falls back to something sound where a version of numba has changed what stands behind it, and
`tests/ops/test_internals.py` takes each of these things away in turn. `pyproject.toml` bounds the versions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOCATORS = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")


def _part(name: str, room: str = "core") -> Any:
    """A module of numba; None if there is no such module."""
    try:
        return importlib.import_module(f"numba.{room}.{name}")
    except ImportError:
        return None


def listen_to_compiler(started: Callable[[Any], None], ended: Callable[[Any], None]) -> bool:
    """Call these functions with numba's dispatcher when a compilation starts and ends.

    Fallback: they are never called.

    Returns:
        Whether numba can be listened to.
    """
    event = _part("event")
    if not hasattr(event, "Listener") or not hasattr(event, "register"):
        return False

    class Listener(event.Listener):  # type: ignore[name-defined, misc]
        def on_start(self, event: Any) -> None:
            started(event.data.get("dispatcher"))

        def on_end(self, event: Any) -> None:
            ended(event.data.get("dispatcher"))

    event.register("numba:compile", Listener())
    return True


def compile_as_whole() -> dict[str, Any]:
    """Flags that make numba optimise a function once, with all that it calls (see `linking`).

    Fallback: no flags, and numba optimises each function as often as others that it is part of.
    """
    codegen, compiler = _part("codegen"), _part("compiler")
    needed = {"_get_module_for_linking", "_finalize_final_module", "_optimize_functions", "finalize"}
    library = getattr(codegen, "JITCodeLibrary", None)
    builder = getattr(compiler, "DefaultPassBuilder", None)
    known = needed <= set(dir(library)) and hasattr(compiler, "CompilerBase")
    known = known and hasattr(getattr(codegen, "CPUCodegen", None), "_module_pass_manager")
    if not known or not hasattr(builder, "define_nopython_pipeline"):
        return {}
    return {"pipeline_class": importlib.import_module("ndstack.ops.runtime.linking").Compiler}


def trust_indices(package: str) -> bool:
    """Compile the functions of a package on the understanding that they use no negative indices.

    By itself numba tests every index that may be negative, which keeps loops from reading whole vectors.
    Fallback: every index is tested.

    Args:
        package: its full name; functions of other packages are compiled as before.

    Returns:
        Whether numba can be told.
    """
    arrays = _part("arrayobj", "np")
    plain = getattr(arrays, "fix_integer_index", None)
    if plain is None:
        return False
    prefix = "_ZN" + "".join(f"{len(part)}{part}" for part in package.split("."))

    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, *rest: Any) -> Any:
        if builder.function.name.startswith(prefix):
            return context.cast(builder, index, kind, _part("types").intp)
        return plain(context, builder, kind, index, *rest)

    arrays.fix_integer_index = fix_integer_index
    return True


def cache_folder(dispatcher: object) -> str | None:
    """The folder in which numba keeps the code of a compiled function; None if it does not, or cannot say."""
    folder: object = getattr(getattr(dispatcher, "_cache", None), "cache_path", None)
    return folder if isinstance(folder, str) else None


def stamp_cache(folder: Path, stamp: Callable[[Path], bytes]) -> bool:
    """Make numba compile functions of the files in a folder again when the stamp of their file changes.

    Fallback: numba compiles a function again only when its own file changes.

    Args:
        folder: whose files are meant; functions of other packages are cached as before.
        stamp: a checksum of everything that compiled functions of a file depend on.

    Returns:
        Whether numba's cache has been told.
    """
    caching = _part("caching")
    known: list[Any] | None = getattr(getattr(caching, "CacheImpl", None), "_locator_classes", None)
    bases = [getattr(caching, name, None) or getattr(caching, f"_{name}", None) for name in _LOCATORS]
    if known is None or not all(bases):
        return False
    known[:0] = [_stamping(base, folder, stamp) for base in bases]
    return True


def _stamping(base: Any, folder: Path, stamp: Callable[[Path], bytes]) -> Any:
    """One of numba's ways to find the place of compiled code, for one folder, with another stamp."""

    def get_source_stamp(self: Any) -> bytes:
        return stamp(self.source)

    def from_function(cls: Any, function: Any, file: str) -> Any:
        source = Path(file).resolve()
        if folder not in source.parents:
            return None
        found = base.from_function.__func__(cls, function, file)
        if found is not None:
            found.source = source
        return found

    methods = {"get_source_stamp": get_source_stamp, "from_function": classmethod(from_function)}
    return type("Locator", (base,), methods)
