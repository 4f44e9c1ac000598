"""What happens when torch traces or transforms the operations of stacks.

`torch.compile` calls these operations as they are, since they are compiled already, and numba's compiler must
not be traced: inside the graph that it makes of everything else, where `in_graph` can do that, or between two
graphs. Only steps of stacks of fixed capacity are traced. `torch.export` records operations of torch, which
the portable backend consists of. `torch.jit` and, for nondeterministic stacks, the transforms of `torch.func`
are refused in one line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.runtime import backends, torch_internals

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def opaque(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return a function that `torch.compile` does not trace, and `torch.export` and `torch.jit` cannot."""

    @functools.wraps(function)
    def call(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        if torch.compiler.is_dynamo_compiling() and not traceable(*arguments):
            return untraced()(function, *arguments, **options)
        refuse_recording()
        return function(*arguments, **options)

    return call


class Call(Protocol):
    """A function that calls another one."""

    def __call__(self, function: Callable[..., _Result], *arguments: object, **options: object) -> _Result:
        """Return what the function returns."""
        ...


def untraced() -> Call:
    """Return what calls a function, and everything that it calls, without a trace of `torch.compile`.

    Where the call is, the graph breaks. It is in the function that asks for it, and not here, because each
    function in which the graph breaks has guards to be checked at every call.
    """
    from ndstack.ops.runtime import dynamo

    return dynamo.call


def constant() -> Call:
    """Return what calls a function while `torch.compile` makes a graph, without a trace of it.

    What it returns holds for the graph; its arguments are guarded by their identity alone.
    """
    from ndstack.ops.runtime import dynamo

    return dynamo.constant


def enters_graph(tensor: Tensor) -> bool:
    """Return whether compiled code can take a tensor that torch traces as part of a graph (see `in_graph`).

    `torch.export` cannot store such a graph; versions of torch that do not tell the two apart get none.
    """
    exporting = getattr(torch.compiler, "is_exporting", None)
    return (
        torch.compiler.is_dynamo_compiling()
        and exporting is not None
        and not exporting()
        and tensor.device.type == "cpu"
        and (tensor.dtype == torch.float32 or tensor.dtype == torch.float64)
        and backends.forced() in ("auto", "cpu")
        and not torch.is_autocast_enabled("cpu")
    )


def traceable(*arguments: object) -> bool:
    """Return whether one of them is a state whose steps `torch.compile` can look into.

    Such steps are operations of torch on tensors whose shapes do not change (stacks of fixed capacity).
    """
    return any(getattr(argument, "traceable", False) is True for argument in arguments)


def transformed() -> bool:
    """Return whether a transform of `torch.func`, or forward-mode differentiation, is at work."""
    return torch_internals.transforms_active()


def refuse_transforms() -> None:
    """To be called by operations that have no version in plain torch."""
    if transformed():
        raise NdstackError(
            "torch.func (vmap, grad, jvp) and forward-mode derivatives cannot look into the operations of "
            "nondeterministic stacks; use the batch in place of vmap, and backward() or torch.autograd.grad"
        )


def recording() -> bool:
    """Return whether `torch.export` is at work, in which tensors have no numbers."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def refuse_recording() -> None:
    """To be called by what `torch.jit` cannot record, and `torch.export` by the portable backend alone."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        refuse("torch.jit.trace")
    if recording() and backends.forced() != "portable":
        raise NdstackError(
            "torch.export cannot record compiled operations of stacks; call "
            "ndstack.use_backend('portable') before it, and use_backend('auto') afterwards"
        )


def refuse(tool: str) -> NoReturn:
    """Raise an error in one line that says what to use instead."""
    raise NdstackError(
        f"{tool} cannot take a network of ndstack: stacks are compiled operations and states are no tensors; "
        "use the network as it is, in torch.inference_mode() or with torch.compile, and save() to move it"
    )


class Recordable:
    """A module that answers `torch.jit.script` in one line."""

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse `torch.jit.script`, which calls this method first."""
        refuse("torch.jit.script")
