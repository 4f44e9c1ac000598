# mypy: allow-untyped-calls
"""Everything that ndstack uses of numba without numba's promise to keep it (see also `torch_internals`).

Each function falls back to something sound where a version of numba has changed what stands behind it, and
`tests/ops/test_internals.py` takes each of these things away in turn. `pyproject.toml` bounds the versions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_LOCATORS = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")


def _part(name: str, room: str = "core") -> ModuleType | None:
    """Return a module of numba; None if there is no such module."""
    try:
        return importlib.import_module(f"numba.{room}.{name}")
    except ImportError:
        return None


def listen_to_compiler(started: Callable[[object], None], ended: Callable[[object], None]) -> bool:
    """Call these functions with numba's dispatcher when a compilation starts and ends.

    Fallback: they are never called.

    Returns:
        Whether numba can be listened to.
    """
    event = _part("event")
    base, register = getattr(event, "Listener", None), getattr(event, "register", None)
    if not isinstance(base, type) or not callable(register):
        return False
    methods = {
        "on_start": lambda self, event: started(event.data.get("dispatcher")),
        "on_end": lambda self, event: ended(event.data.get("dispatcher")),
    }
    register("numba:compile", type("Listener", (base,), methods)())
    return True


def compile_as_whole() -> dict[str, type]:
    """Return flags that make numba optimise a function once, with all that it calls (see `linking`).

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
    arrays, types = _part("arrayobj", "np"), _part("types")
    plain, whole = getattr(arrays, "fix_integer_index", None), getattr(types, "intp", None)
    if arrays is None or plain is None or whole is None:
        return False
    prefix = "_ZN" + "".join(f"{len(part)}{part}" for part in package.split("."))

    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, *rest: Any) -> Any:
        if builder.function.name.startswith(prefix):
            return context.cast(builder, index, kind, whole)
        return plain(context, builder, kind, index, *rest)

    vars(arrays)["fix_integer_index"] = fix_integer_index
    return True


def c_address(dispatcher: Any, given: tuple[object, ...]) -> int | None:
    """Return the address of a compiled function for C code; its arguments are of these types.

    It is compiled if it has not been yet. Fallback: None, and only Python can call it.
    """
    try:
        if given not in dispatcher.overloads:
            dispatcher.compile(given)
        made = dispatcher.overloads[given]
        place: int = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
    except AttributeError:
        return None
    return place or None


def address(dispatcher: Any, given: tuple[object, ...]) -> int | None:
    """Return the address of a compiled function that returns nothing, for other code of numba.

    It is compiled if it has not been yet. Fallback: None, and only Python can call it.
    """
    try:
        if given not in dispatcher.overloads:
            dispatcher.compile(given)
        made = dispatcher.overloads[given]
        if str(made.signature.return_type) != "none":
            return None
        place: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    except AttributeError:
        return None
    return place or None


def cache_folder(dispatcher: object) -> str | None:
    """Return the folder in which numba keeps the code of a function; None if it is not known."""
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
    known: list[type] | None = getattr(getattr(caching, "CacheImpl", None), "_locator_classes", None)
    bases = [getattr(caching, name, None) or getattr(caching, f"_{name}", None) for name in _LOCATORS]
    if known is None or not all(bases):
        return False
    known[:0] = [_stamping(base, folder, stamp) for base in bases if isinstance(base, type)]
    return True


def _stamping(base: type, folder: Path, stamp: Callable[[Path], bytes]) -> type:
    """One of numba's ways to find the place of compiled code, for one folder, with another stamp."""

    find: Callable[[type, object, str], object] = getattr(base, "from_function").__func__  # noqa: B009

    def from_function(cls: type, function: object, file: str) -> object:
        source = Path(file).resolve()
        found = find(cls, function, file) if folder in source.parents else None
        if found is not None:
            vars(found)["source"] = source
        return found

    methods = {
        "get_source_stamp": lambda self: stamp(self.source),
        "from_function": classmethod(from_function),
    }
    return type("Locator", (base,), methods)
