"""Modules that are imported when they are first used, because to import numba takes a second."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Has the attributes of a module, which is imported when one of them is first asked for.

    Args:
        name: of the module, complete.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # from now on it is found without this method
        return value
