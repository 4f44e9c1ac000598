"""Modules that are imported when they are first used, because importing numba takes a second."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A stand-in for a module, which is imported when an attribute is first asked for.

    Args:
        name: the full name of the module.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # from now on it is found without this method
        return value
