"""One step of stacks from a controller's hidden state; alone, or with the LSTM that is the controller.

Each is one differentiable operation, because to call an operation costs more than the work of a small layer.
What the stacks themselves do is left to a `Kernel`, a module of compiled functions.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from ndstack.ops.lstm.cell import cell_backward, cell_forward
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    contiguous_rows,
    in_own_precision,
    refuse_second_derivatives,
)

StepGradients = tuple[Tensor, Tensor, Tensor, Tensor]
"""The derivatives with respect to cells, hidden state, and weight and bias of the layer."""


class Kernel(Protocol):
    """A step of stacks and its adjoint; tensors are contiguous, `hidden` may have a stride between its rows.

    What stacks hold is a tensor, `cells`, of any shape whose first size is B; they are at most `limit` deep.
    """

    def forward_from_hidden(
        self, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, limit: int
    ) -> tuple[Tensor, Tensor]:
        """The readings, [B, R], and the new cells."""

    def backward_from_hidden(
        self, saved: Sequence[Tensor], grad_reading: Tensor | None, grad_new: Tensor | None
    ) -> StepGradients:
        """The adjoint; None stands for zeros, and `grad_reading` may have a stride between its rows.

        Args:
            saved: cells, hidden state, weight, bias and the new cells.
        """


def step_from_hidden(
    kernel: Kernel, limit: int, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The readings and the new cells."""
    result: tuple[Tensor, Tensor] = _StepFromHidden.apply(kernel, limit, cells, hidden, weight, bias)
    return result


def step_lstm(
    kernel: Kernel,
    limit: int,
    gates: Tensor,
    weights: LSTMWeights,
    lstm_state: tuple[Tensor, Tensor],
    reading: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h_t and c_t, then the readings and the new cells.

    Args:
        kernel, limit: as for `step_from_hidden`.
        gates: [B, 4H], what the input contributes, biases included.
        weights: of the controller.
        lstm_state: h_{t-1} and c_{t-1}, [B, H] each.
        reading: [B, R], r_{t-1}.
        cells: what the stacks hold.
    """
    inputs = (gates, reading, *lstm_state, *weights, cells)
    result: tuple[Tensor, Tensor, Tensor, Tensor] = _StepLSTM.apply(kernel, limit, *inputs)
    return result


class _StepFromHidden(Operation):
    @staticmethod
    def forward(
        ctx: Context, kernel: Kernel, limit: int, cells: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = cells.contiguous(), contiguous_rows(hidden), weight.contiguous(), bias.contiguous()
        reading, new = kernel.forward_from_hidden(*inputs, limit)
        ctx.save_for_backward(*inputs, new)
        ctx.set_materialize_grads(False)
        ctx.kernel = kernel
        return reading, new

    @staticmethod
    def backward(ctx: Context, grad_reading: Tensor | None, grad_new: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        return None, None, *_backward_from_hidden(ctx.kernel, ctx.saved_tensors, grad_reading, grad_new)


class _StepLSTM(Operation):
    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context,
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
        ctx: Context,
        grad_hidden: Tensor | None,
        grad_memory: Tensor | None,
        grad_reading: Tensor | None,
        grad_new: Tensor | None,
    ) -> Gradients:
        refuse_second_derivatives()
        saved = ctx.saved_tensors
        grad_cells, by_stack, *of_layer = _backward_from_hidden(ctx.kernel, saved[7:], grad_reading, grad_new)
        if grad_hidden is not None:
            by_stack += grad_hidden
        grads = cell_backward(saved[:7], by_stack, grad_memory, ctx.needs_input_grad[2:])
        return None, None, *grads, *of_layer, grad_cells


def _backward_from_hidden(
    kernel: Kernel, saved: Sequence[Tensor], grad_reading: Tensor | None, grad_new: Tensor | None
) -> StepGradients:
    if grad_reading is not None:
        grad_reading = contiguous_rows(grad_reading)
    if grad_new is not None:
        grad_new = grad_new.contiguous()
    return kernel.backward_from_hidden(saved, grad_reading, grad_new)
