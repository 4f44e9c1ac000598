"""What all differentiable operations around compiled code share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ndstack.errors import NdstackError
from ndstack.ops.runtime.tracing import refuse_recording, traceable, transformed, untraced

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

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
    """Return the same numbers with contiguous rows, which need not follow one another without gaps."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def compilable(tensor: Tensor) -> bool:
    """Return whether compiled code can take the tensor; tracers and transforms need plain torch."""
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


def autocast_enabled() -> bool:
    """Return whether this is a region of `torch.autocast`."""
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def own_precision() -> contextlib.AbstractContextManager[None]:
    """Return a context in which code computes in the dtypes that it is given, even within `torch.autocast`.

    Autocast would hand it products in bfloat16, which compiled code cannot read.
    """
    return _without_autocast() if autocast_enabled() else contextlib.nullcontext()


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def in_own_precision(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return a function that runs in `own_precision`."""

    @functools.wraps(function)
    def wrapped(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        if not autocast_enabled():
            return function(*arguments, **options)
        with own_precision():
            return function(*arguments, **options)

    return wrapped


def opaque_in_own_precision(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Both `tracing.opaque` and `in_own_precision`, in one call; for the public operations of stacks."""

    @functools.wraps(function)
    def call(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        if torch.compiler.is_dynamo_compiling() and not traceable(*arguments):
            return untraced()(call, *arguments, **options)
        refuse_recording()
        if not autocast_enabled():
            return function(*arguments, **options)
        with own_precision():
            return function(*arguments, **options)

    return call
