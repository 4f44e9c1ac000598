"""How `torch.compile` calls what it must not trace.

`tracing` imports this module when it is first needed, since importing torch's own part of it takes seconds.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ndstack.ops.runtime.tracing import Call

_Result = TypeVar("_Result")


def _call(function: Callable[..., _Result], *arguments: object, **options: object) -> _Result:
    return function(*arguments, **options)


def _ask(function: Callable[..., _Result], *arguments: object, **options: object) -> _Result:
    return function(*arguments, **options)


_compiler: Any = torch.compiler  # parts of which have no types

call: Call = _compiler.disable(_call, reason="the operations of stacks are compiled already, by numba")
"""Call a function as it is, and everything that it calls."""

constant: Call = _compiler.assume_constant_result(_ask)
"""Call a function while the graph is made; what it returns is part of the graph."""
