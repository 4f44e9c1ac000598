"""Neural networks with nondeterministic stacks, and the theory that goes with them.

The rooms of the house are imported when first used: `ndstack.languages`, `ndstack.grammars`, ...
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = ("automata", "functional", "grammars", "languages", "nn", "semirings", "stacks", "training")


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"ndstack.{name}")
    raise AttributeError(f"module 'ndstack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ROOMS]
