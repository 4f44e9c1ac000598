"""Neural networks with nondeterministic stacks, and the theory that goes with them.

The rooms of the house are imported when first used: `ndstack.languages`, `ndstack.grammars`, ...
"""

import importlib
import os
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = (
    "analysis",
    "automata",
    "experiments",
    "functional",
    "grammars",
    "languages",
    "nn",
    "register",
    "semirings",
    "settings",
    "stacks",
    "text",
    "training",
    "transductions",
)


def backends() -> dict[str, str]:
    """Return the backend of the stacks, "cpu", "triton" or "portable", on each kind of device there is."""
    from ndstack.ops.runtime.backends import describe

    return describe()


def use_backend(name: str) -> None:
    """Let all stacks run by one backend from now on, or, with "auto", by the best one for their device."""
    from ndstack.ops.runtime.backends import use

    use(name)


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"ndstack.{name}")
    raise AttributeError(f"module 'ndstack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ROOMS]


if "NDSTACK_LAUNCHER" in os.environ:  # another process of ndstack has started this one
    from ndstack.processes import follow_parent

    follow_parent()
