"""Operations of stacks inside the graphs of `torch.compile`.

There is one operation of torch for all forward passes and one for all backward passes, and the compiler does
not look into either: it is told which shapes come out, and both are called as they are between the code that
it makes of everything else. So a network around a stack is one graph. A break in the graph would cost more
than a small graph saves.

The forward pass leaves what the backward pass needs on its last output, the ticket, an empty tensor. A ticket
that was copied on the way (`torch.autograd.graph.save_on_cpu`) has lost it, and the forward pass is made
again. What is on a ticket may be memory of outputs, so the backward pass is given the outputs, too: the
compiler does not use their memory for something else before that.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ndstack.ops.runtime.autograd import Context, Gradients, Operation

Shape = tuple[int, ...]
_Result = TypeVar("_Result")
_KEPT = "ndstack_kept"  # the attribute of a ticket


class Kept(Context):
    """What both passes of an operation share, where torch has no context for them."""

    def __init__(self, record: bool) -> None:
        self.saved_tensors = ()
        self.needs_input_grad = (record, False)  # that of the last input says whether there was a past

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors


class Passes(Protocol):
    """The two passes of an operation, on tensors of one dtype, on a CPU."""

    def shapes(self, numbers: Sequence[int], given: Sequence[Tensor]) -> Sequence[Shape]:
        """Return the shapes of the outputs, for tensors that may have no numbers."""
        ...

    def forward(
        self, record: bool, numbers: Sequence[int], given: Sequence[Tensor]
    ) -> tuple[object, tuple[Tensor, ...]]:
        """Return what the backward pass needs, if it is to be recorded, and the outputs.

        Args:
            record: whether there will be a backward pass.
            numbers: what is the same in every call.
            given: the tensors, by all of which the outputs are differentiated.
        """
        ...

    def backward(self, kept: object, grads: Sequence[Tensor]) -> Gradients:
        """Return the derivatives with respect to all that was given.

        Args:
            kept: what the forward pass returned.
            grads: with respect to the outputs; those of the last ones may be missing, if they are zeros.
        """
        ...


class Fresh(NamedTuple):
    """Fresh stacks that a controller drives: the operation, and what it is told of them.

    Attributes:
        name: of the module of the operation.
        numbers: see `Passes.forward`.
        first: what it is given besides inputs and weights.
    """

    name: str
    numbers: tuple[int, ...]
    first: tuple[Tensor, ...] = ()


@functools.cache
def find_passes(module: str) -> Passes:
    """Return the passes of an operation, which its module calls `passes`."""
    found: Passes = importlib.import_module(module).passes
    return found


def _forward(name: str, numbers: list[int], given: list[Tensor], record: bool) -> list[Tensor]:
    kept, outputs = find_passes(name).forward(record, numbers, given)
    ticket = given[0].new_empty(0)
    if record:
        setattr(ticket, _KEPT, kept)
    return [*outputs, ticket]


def _fake_forward(name: str, numbers: list[int], given: list[Tensor], record: bool) -> list[Tensor]:
    shapes = (*find_passes(name).shapes(numbers, given), (0,))
    return [given[0].new_empty(shape) for shape in shapes]


def _backward(
    name: str,
    numbers: list[int],
    given: list[Tensor],
    ticket: Tensor,
    shown: list[Tensor],
    grads: list[Tensor],
) -> list[Tensor]:
    passes = find_passes(name)
    kept = getattr(ticket, _KEPT, None)
    if kept is None:
        kept, _ = passes.forward(True, numbers, given)
    found = zip(passes.backward(kept, grads), given, strict=True)
    return [tensor.new_zeros(tensor.shape) if grad is None else grad.contiguous() for grad, tensor in found]


def _fake_backward(
    name: str,
    numbers: list[int],
    given: list[Tensor],
    ticket: Tensor,
    shown: list[Tensor],
    grads: list[Tensor],
) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in given]


_of_torch: Any = torch  # parts of which have no types
_library = _of_torch.library.Library("ndstack", "DEF")


def define(schema: str, kernel: Callable[..., object], fake: Callable[..., object]) -> None:
    """Define an operation of torch, `torch.ops.ndstack.name`, that no graph looks into.

    Args:
        schema: its name, arguments and results, as torch writes them.
        kernel: what it does on a CPU.
        fake: gives results of the same shapes, for tensors that have no numbers.
    """
    name = _library.define(schema)
    _library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"ndstack::{name}", fake, lib=_library)


_given = "str name, int[] numbers, Tensor[] given"
define(f"forward({_given}, bool record) -> Tensor[]", _forward, _fake_forward)
define(
    f"backward({_given}, Tensor ticket, Tensor[] shown, Tensor[] grads) -> Tensor[]",
    _backward,
    _fake_backward,
)


class _Call(Operation):
    """A differentiable call of the two operations, which `torch.compile` traces."""

    @staticmethod
    def forward(
        ctx: Context, name: str, numbers: tuple[int, ...], record: bool, *given: Tensor
    ) -> tuple[Tensor, ...]:
        *shown, ticket = torch.ops.ndstack.forward(name, numbers, given, record)
        ctx.name, ctx.numbers, ctx.count = name, numbers, len(given)
        ctx.save_for_backward(*given, ticket, *shown)
        return tuple(shown)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> Gradients:
        saved, count = ctx.saved_tensors, ctx.count
        given, ticket, shown = saved[:count], saved[count], saved[count + 1 :]
        found = torch.ops.ndstack.backward(ctx.name, ctx.numbers, given, ticket, shown, grads)
        return None, None, None, *found


def call(name: str, numbers: tuple[int, ...], *given: Tensor) -> tuple[Tensor, ...]:
    """Call a registered operation from a function that `torch.compile` traces."""
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    outputs: tuple[Tensor, ...] = _Call.apply(name, numbers, record, *given)
    return outputs


def least(one: int, other: int) -> int:
    """Return the smaller of two sizes, one of which may be unknown while a graph is made."""
    found: int = _of_torch.sym_min(one, other)
    return found


def apart(work: Callable[[], _Result]) -> _Result:
    """Return what a function returns that needs torch's derivatives, called from within a pass.

    It runs in a thread of its own, because torch records nothing inside an operation of the graph.
    """
    found: list[_Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
