"""One step of an LSTM and of the stacks that it drives, as one differentiable operation."""

from torch import Tensor

from ndstack.ops.lstm.cell import cell_backward, cell_forward
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.runtime import stack_step
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    in_own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.stack_step import StepKernel


def step_lstm(
    kernel: StepKernel,
    limit: int,
    gates: Tensor,
    weights: LSTMWeights,
    lstm_state: tuple[Tensor, Tensor],
    reading: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return h_t and c_t, then the readings and the new cells.

    Args:
        kernel: the compiled step of the stacks.
        limit: how deep the stacks may be.
        gates: [B, 4H], what the input contributes, biases included.
        weights: of the controller.
        lstm_state: h_{t-1} and c_{t-1}, [B, H] each.
        reading: [B, R], r_{t-1}.
        cells: what the stacks hold.
    """
    inputs = (gates, reading, *lstm_state, *weights, cells)
    result: tuple[Tensor, Tensor, Tensor, Tensor] = _StepLSTM.apply(kernel, limit, *inputs)
    return result


class _StepLSTM(Operation):
    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context,
        kernel: StepKernel,
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
        gates, shown, memory = cell_forward(added, reading, hidden, before, by_reading, by_hidden)
        given = shown, weight.contiguous(), bias.contiguous()
        new_reading, new = kernel.forward_step(cells, given, limit)
        ctx.save_for_backward(
            gates, reading, hidden, before, memory, by_reading, by_hidden, cells, *given, new
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
        grad_cells, by_stack, *of_layer = stack_step.backward(ctx.kernel, saved[7:], grad_reading, grad_new)
        if grad_hidden is not None:
            by_stack += grad_hidden
        grads = cell_backward(saved[:7], by_stack, grad_memory, ctx.needs_input_grad[2:])
        return None, None, *grads, *of_layer, grad_cells
