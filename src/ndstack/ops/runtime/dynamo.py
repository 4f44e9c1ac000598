"""How `torch.compile` calls what it must not trace.

`tracing` imports this module when it is first needed, since importing torch's own part of it takes seconds.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from ndstack.ops.runtime.tracing import Call

_Result = TypeVar("_Result")


def _call(function: Callable[..., _Result], *arguments: object, **options: object) -> _Result:
    return function(*arguments, **options)


def _ask(function: Callable[..., _Result], *arguments: object, **options: object) -> _Result:
    return function(*arguments, **options)


call: Call = torch.compiler.disable(  # type: ignore[no-untyped-call]
    _call, reason="the operations of stacks are compiled already, by numba"
)
"""Call a function as it is, and everything that it calls."""

constant: Call = torch.compiler.assume_constant_result(_ask)  # type: ignore[no-untyped-call]
"""Call a function while the graph is made; what it returns is part of the graph."""
