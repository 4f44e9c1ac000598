"""One step of stacks as one differentiable operation; to call another would cost more than a small layer.

A step is driven by action logits and the vectors to push, or by hidden states and the layer that computes
both from them. What the stacks do is left to a `StepKernel`, a module of compiled functions.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ndstack.ops.runtime.addresses import address, empty_with_address, rows
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    refuse_second_derivatives,
)

NO_LIMIT = 2**62
"""The limit of stacks that may be of any depth."""


class StepKernel(Protocol):
    """A step of stacks and its adjoint.

    What stacks hold is a contiguous tensor, `cells`, of any shape whose first size is B. `given` is logits
    [B, A] and vectors [B, m], both with contiguous rows; or hidden states [B, H] with contiguous rows and a
    contiguous layer, weight [A + m, H] and bias [A + m].
    """

    def forward_step(self, cells: Tensor, given: Sequence[Tensor], limit: int) -> tuple[Tensor, Tensor]:
        """Return the readings, [B, R], and the new cells of stacks that are at most `limit` deep."""

    def backward_step(
        self,
        cells: Tensor,
        given: Sequence[Tensor],
        new: Tensor,
        grad_reading: Tensor | None,
        grad_new: Tensor | None,
    ) -> list[Tensor]:
        """Return the derivatives with respect to the cells and all that is given; None stands for zeros."""


def step(kernel: StepKernel, limit: int, cells: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
    """Make one step of stacks: the readings and the new cells; arguments as in `StepKernel.forward_step`."""
    result: tuple[Tensor, Tensor] = _Step.apply(kernel, limit, cells, *given)
    return result


class _Step(Operation):
    @staticmethod
    def forward(
        ctx: Context,
        kernel: StepKernel,
        limit: int,
        cells: Tensor,
        first: Tensor,
        second: Tensor,
        *bias: Tensor,
    ) -> tuple[Tensor, Tensor]:
        cells, first = cells.contiguous(), contiguous_rows(first)
        given: tuple[Tensor, ...] = first, contiguous_rows(second)
        if bias:
            given = first, second.contiguous(), bias[0].contiguous()
        reading, new = kernel.forward_step(cells, given, limit)
        ctx.save_for_backward(cells, *given, new)
        ctx.set_materialize_grads(False)
        ctx.kernel = kernel
        return reading, new

    @staticmethod
    def backward(ctx: Context, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        return None, None, *backward(ctx.kernel, ctx.saved_tensors, grad_reading, grad_new)


def backward(
    kernel: StepKernel, saved: Sequence[Tensor], grad_reading: Tensor | None, grad_new: Tensor | None
) -> list[Tensor]:
    """Return the derivatives of a step; `saved` is the cells, all that was given, and the new cells."""
    cells, *given, new = saved
    grad_reading = None if grad_reading is None else contiguous_rows(grad_reading)
    grad_new = None if grad_new is None else grad_new.contiguous()
    return kernel.backward_step(cells, given, new, grad_reading, grad_new)


def addresses_of_given(
    given: Sequence[Tensor], dtype: torch.dtype, batch: int, actions: int, pushed: int
) -> tuple[int, ...]:
    """Return where compiled code finds what drives a step (see `drive_loops.read_controls`)."""
    if len(given) == 2:
        return *rows(given[0], dtype, batch, actions), *rows(given[1], dtype, batch, pushed), 0, 0, 0
    (hidden, weight, bias), size = given, actions + pushed
    units = hidden.shape[1]
    layer = address(weight, dtype, size, units), address(bias, dtype, size)
    return *rows(hidden, dtype, batch, units), 0, 0, units, *layer


def room_for_gradients(cells: Tensor, given: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """Return memory for the derivatives with respect to these, and four addresses, of which one may be 0."""
    made = [empty_with_address(cells.dtype, *tensor.shape) for tensor in (cells, *given)]
    places = [place for _, place in made]
    return [grad for grad, _ in made], places if len(places) == 4 else [*places, 0]
