"""Defaults in the reference: `mkdocs.yml` names this file.

Where a signature says `controller: str = DEFAULTS.controller`, the reference shows the value, 'lstm'.
"""

import importlib
import re
from typing import Any

import griffe

NAMED = re.compile(r"[A-Z][A-Z_]+(\.\w+)?")
SHOWN = (bool, int, float, str, type(None))


class Defaults(griffe.Extension):
    """Replaces the names of constants by their values."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Look at the parameters of a function that has been read."""
        for parameter in func.parameters:
            name = str(parameter.default)
            if not NAMED.fullmatch(name):
                continue
            value: object = importlib.import_module(func.module.path)
            for part in name.split("."):
                value = getattr(value, part)
            if isinstance(value, SHOWN):
                parameter.default = repr(value)
