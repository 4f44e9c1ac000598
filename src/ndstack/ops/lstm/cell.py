"""One step of an LSTM as one differentiable operation; torch's dozen operations take longer than the work."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.runtime.addresses import KIND, address, empty_with_address, optional
from ndstack.ops.runtime.autograd import (
    Context,
    Gradients,
    Operation,
    compilable,
    in_own_precision,
    refuse_second_derivatives,
)
from ndstack.ops.runtime.lazy import LazyModule

_compiled = LazyModule("ndstack.ops.lstm.cell_loops")


def lstm_cell(
    gates: Tensor, x: Tensor, hidden: Tensor, memory: Tensor, by_x: Tensor, by_hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """Return h_t and c_t, [B, H] each.

    Args:
        gates: what is added to the gates, [B, 4H] or [4H], ordered (input, forget, cell, output).
        x: [B, I], the input or part of it.
        hidden: [B, H], h_{t-1}.
        memory: [B, H], c_{t-1}.
        by_x, by_hidden: [4H, I] and [4H, H].
    """
    inputs = (gates, x, hidden, memory, by_x, by_hidden)
    if any(tensor.dtype != memory.dtype for tensor in inputs):
        widest = functools.reduce(torch.promote_types, (tensor.dtype for tensor in inputs))
        gates, x, hidden = gates.to(widest), x.to(widest), hidden.to(widest)
        memory, by_x, by_hidden = memory.to(widest), by_x.to(widest), by_hidden.to(widest)
        inputs = (gates, x, hidden, memory, by_x, by_hidden)
    if compilable(gates) and all(tensor.is_cpu for tensor in inputs):
        result: tuple[Tensor, Tensor] = _Cell.apply(*inputs)
        return result
    gates = torch.addmm(torch.addmm(gates, x, by_x.t()), hidden, by_hidden.t())
    i, f, g, o = gates.chunk(4, dim=1)
    memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
    return o.sigmoid() * memory.tanh(), memory


class _Cell(Operation):
    @staticmethod
    @in_own_precision
    def forward(
        ctx: Context,
        added: Tensor,
        x: Tensor,
        hidden: Tensor,
        before: Tensor,
        by_x: Tensor,
        by_hidden: Tensor,
    ) -> tuple[Tensor, Tensor]:
        before = before.contiguous()
        gates, shown, memory = cell_forward(added, x, hidden, before, by_x, by_hidden)
        ctx.save_for_backward(gates, x, hidden, before, memory, by_x, by_hidden)
        ctx.set_materialize_grads(False)
        ctx.broadcast = added.dim() == 1
        return shown, memory

    @staticmethod
    @in_own_precision
    def backward(ctx: Context, grad_hidden: Tensor | None, grad_memory: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        grads = cell_backward(ctx.saved_tensors, grad_hidden, grad_memory, ctx.needs_input_grad)
        return grads[0].sum(0) if ctx.broadcast else grads[0], *grads[1:]


def cell_forward(
    added: Tensor, x: Tensor, hidden: Tensor, before: Tensor, by_x: Tensor, by_hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the activated gates, h_t and c_t; arguments as for `lstm_cell`, c_{t-1} contiguous."""
    gates = torch.addmm(added, x, by_x.t()).addmm_(hidden, by_hidden.t())
    (batch, units), dtype = before.shape, before.dtype
    (memory, memory_at), (shown, shown_at) = (
        empty_with_address(dtype, batch, units),
        empty_with_address(dtype, batch, units),
    )
    _compiled.activate(
        KIND[dtype], batch, units, address(gates, dtype, batch, 4 * units),
        address(before, dtype, batch, units), memory_at, shown_at,
    )  # fmt: skip
    return gates, shown, memory


def cell_backward(
    saved: Sequence[Tensor], grad_hidden: Tensor | None, grad_memory: Tensor | None, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor | None, Tensor | None]:
    """Compute the adjoint of `cell_forward`.

    Args:
        saved: gates, x, h_{t-1}, c_{t-1}, c_t, by_x, by_hidden.
        grad_hidden, grad_memory: the derivatives with respect to h_t and c_t; None for zeros.
        wanted: for each argument of `cell_forward`, whether its derivative is.

    Returns:
        The derivatives with respect to the arguments of `cell_forward`; that of `added` for each row.
    """
    gates, x, hidden, before, memory, by_x, by_hidden = saved
    (batch, units), dtype = before.shape, before.dtype
    grad_gates, grad_gates_at = empty_with_address(dtype, batch, 4 * units)
    grad_before, grad_before_at = empty_with_address(dtype, batch, units)
    given = [None if grad is None else grad.contiguous() for grad in (grad_hidden, grad_memory)]
    _compiled.activate_backward(
        KIND[dtype], batch, units, address(gates, dtype, batch, 4 * units),
        address(before, dtype, batch, units), address(memory, dtype, batch, units),
        *(optional(grad, dtype, batch, units) for grad in given), grad_gates_at, grad_before_at,
    )  # fmt: skip
    turned = grad_gates.t()
    return (
        grad_gates,
        grad_gates @ by_x if wanted[1] else None,
        grad_gates @ by_hidden if wanted[2] else None,
        grad_before,
        turned @ x if wanted[4] else None,
        turned @ hidden if wanted[5] else None,
    )
