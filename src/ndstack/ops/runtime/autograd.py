"""What the differentiable operations around compiled code have in common."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ndstack.errors import NdstackError
from ndstack.ops.runtime.tracing import refuse_recording, transformed, untraced

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_NOTHING_TO_DO = contextlib.nullcontext()

if TYPE_CHECKING:

    class Context(FunctionCtx):
        """What torch hands to both passes of an operation; anything may be kept on it."""

        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: object) -> None: ...

    class Operation(torch.autograd.Function):
        """A differentiable operation, written as its two passes."""

        @classmethod
        def apply(cls, *given: object) -> Any:
            """Call the operation."""
else:
    Context, Operation = FunctionCtx, torch.autograd.Function

Gradients = tuple[Tensor | None, ...]
"""What a backward pass returns: a derivative for each argument of the forward pass, or None."""


def contiguous_rows(tensor: Tensor) -> Tensor:
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


def own_precision() -> contextlib.AbstractContextManager[None]:
    """A region of code that computes in the dtypes that it is given, within `torch.autocast` too.

    Autocast would hand it products in bfloat16, which compiled code cannot read.
    """
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        return _NOTHING_TO_DO
    return _without_autocast()


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def in_own_precision(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """A function that runs in `own_precision`."""

    @functools.wraps(function)
    def wrapped(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        with own_precision():
            return function(*arguments, **options)

    return wrapped


def opaque_in_own_precision(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Both `tracing.opaque` and `in_own_precision`, in one call; for the public operations of stacks."""

    @functools.wraps(function)
    def call(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        if torch.compiler.is_dynamo_compiling():
            return untraced(call, *arguments, **options)
        refuse_recording()
        with own_precision():
            return function(*arguments, **options)

    return call
