"""One step of stacks from a controller's hidden state; alone, or with the LSTM that is the controller.

Each is one differentiable operation, since an operation costs more than the work of a small layer. What the
stacks themselves do is the business of a `Kernel`, a module of compiled functions.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from ndstack.ops.lstm.cell import cell_backward, cell_forward
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.runtime.autograd import in_own_precision, refuse_second_derivatives, with_stride

Saved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Cells, hidden state, weight and bias of the layer, and the new cells."""

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
"""The derivatives by cells, hidden state, weight and bias."""


class Kernel(Protocol):
    """A step of stacks and its adjoint; tensors are contiguous, `hidden` may have a stride between its rows.

    What stacks hold is a tensor, `cells`, of any shape whose first size is B; they are at most `limit` deep.
    """

    def forward_from_hidden(
        self, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
    ) -> tuple[Tensor, Tensor]:
        """The readings, [B, R], and the new cells."""

    def backward_from_hidden(
        self, saved: Saved, grad_reading: Tensor | None, grad_new: Tensor | None
    ) -> Gradients:
        """The adjoint; `grad_reading` may have a stride between its rows, None stands for zeros."""


def step_from_hidden(
    kernel: Kernel, limit: int, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The readings and the new cells."""
    return _StepFromHidden.apply(kernel, limit, cells, hidden, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


def step_lstm(
    kernel: Kernel,
    limit: int,
    gates: Tensor,
    weights: LSTMWeights,
    memory: tuple[Tensor, Tensor],
    reading: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h_t and c_t, then the readings and the new cells.

    Args:
        kernel, limit: as for `step_from_hidden`.
        gates: [B, 4H], what the input contributes, biases included.
        weights: of the controller.
        memory: h_{t-1} and c_{t-1}, [B, H] each.
        reading: [B, R], r_{t-1}.
        cells: what the stacks hold.
    """
    inputs = (gates, reading, *memory, *weights, cells)
    return _StepLSTM.apply(kernel, limit, *inputs)  # type: ignore[no-any-return, no-untyped-call]


class _StepFromHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, limit: int, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = cells.contiguous(), with_stride(hidden), weight.contiguous(), bias.contiguous()
        reading, new = kernel.forward_from_hidden(*inputs, limit)
        ctx.save_for_backward(*inputs, new)
        ctx.set_materialize_grads(False)
        ctx.kernel = kernel
        return reading, new

    @staticmethod
    def backward(ctx: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
        refuse_second_derivatives()
        return None, None, *_backward_from_hidden(ctx, ctx.saved_tensors, grad_reading, grad_new)


class _StepLSTM(torch.autograd.Function):
    @staticmethod
    @in_own_precision
    def forward(
        ctx: Any,
        kernel: Kernel,
        limit: int,
        added: Tensor,
        reading: Tensor,
        hidden: Tensor,
        before: Tensor,
        by_reading: Tensor,
        by_hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        cells: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        before, cells = before.contiguous(), cells.contiguous()
        weight, bias = weight.contiguous(), bias.contiguous()
        gates, shown, memory = cell_forward(added, reading, hidden, before, by_reading, by_hidden)
        new_reading, new = kernel.forward_from_hidden(cells, shown, weight, bias, limit)
        ctx.save_for_backward(
            gates, reading, hidden, before, memory, by_reading, by_hidden, cells, shown, weight, bias, new
        )
        ctx.set_materialize_grads(False)
        ctx.kernel = kernel
        return shown, memory, new_reading, new

    @staticmethod
    @in_own_precision
    def backward(
        ctx: Any,
        grad_hidden: Tensor | None,
        grad_memory: Tensor | None,
        grad_reading: Tensor | None,
        grad_new: Tensor | None,
    ) -> Any:
        refuse_second_derivatives()
        saved = ctx.saved_tensors
        grad_cells, by_stack, *of_layer = _backward_from_hidden(ctx, saved[7:], grad_reading, grad_new)
        if grad_hidden is not None:
            by_stack += grad_hidden
        grads = cell_backward(saved[:7], by_stack, grad_memory, ctx.needs_input_grad[2:])
        return None, None, *grads, *of_layer, grad_cells


def _backward_from_hidden(ctx: Any, saved: Any, grad_reading: Tensor | None, grad_new: Tensor | None) -> Any:
    if grad_reading is not None:
        grad_reading = with_stride(grad_reading)
    if grad_new is not None:
        grad_new = grad_new.contiguous()
    return ctx.kernel.backward_from_hidden(saved, grad_reading, grad_new)
