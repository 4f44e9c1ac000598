"""What the differentiable operations around compiled code have in common."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.runtime.tracing import transformed

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


def with_stride(tensor: Tensor) -> Tensor:
    """The same numbers, each row in one piece, the rows not necessarily one after the other."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def compilable(tensor: Tensor) -> bool:
    """Whether compiled code can take it; tracers and transforms must have the plain version instead."""
    return (
        tensor.is_cpu
        and (tensor.dtype is torch.float32 or tensor.dtype is torch.float64)
        and not torch.compiler.is_compiling()
        and not transformed()
    )


def refuse_second_derivatives() -> None:
    """To be called by a derivative that is not differentiable itself."""
    if torch.is_grad_enabled():
        raise NdstackError(
            "second derivatives of this stack are not available here; leave out create_graph=True"
        )


def in_own_precision(function: Wrapped) -> Wrapped:
    """Let a function compute in the dtypes that it is given, in a region of `torch.autocast` too.

    Autocast would hand it products in bfloat16, which compiled code cannot read.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
            return function(*arguments, **options)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*arguments, **options)

    return wrapped  # type: ignore[return-value]
