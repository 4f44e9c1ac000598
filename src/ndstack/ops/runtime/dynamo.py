"""How `torch.compile` calls what it must not trace; imported by `kernels.tracing` when it is first needed.

To import torch's own part of this takes seconds, which only those who compile shall wait for.
"""

from collections.abc import Callable
from typing import Any

import torch


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)


call = torch.compiler.disable(  # type: ignore[no-untyped-call]
    _call, reason="the operations of stacks are compiled already, by numba"
)
"""Call a function as it is, and everything that it calls."""
