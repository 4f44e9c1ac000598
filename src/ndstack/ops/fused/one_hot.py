"""An LSTM that drives fresh stacks and reads symbols, as one differentiable operation.

A language model over a formal language reads one-hot vectors. What these contribute to the gates are columns
of a matrix, so there is no need for the vectors, nor for a product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.fused import one_hot_loops as loops
from ndstack.ops.runtime.addresses import array, empty, written
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.in_graph import Fresh, find_passes
from ndstack.ops.runtime.torch_internals import plain_apply


def run(
    fresh: Fresh, symbols: Tensor, known: int, own: Sequence[Tensor], controls: Sequence[Tensor]
) -> Tensor | None:
    """Return h_0, which is 0, to h_n, [B, n + 1, H]; None if a symbol is not known.

    Args:
        fresh: the stacks, and how they are run.
        symbols: [B, n], int64; n > 0.
        known: I, how many symbols there are.
        own: the weights of the LSTM, as torch has them: [4H, I + R], [4H, H] and two biases, [4H] each. These
            and all other weights are on a CPU, and of one dtype.
        controls: weight [C, H] and bias [C] of the layer that drives the stack; or those of two layers, whose
            outputs stand side by side.
    """
    weight, _, *biases = own
    (batch, n), (size, columns), dtype = symbols.shape, weight.shape, weight.dtype
    gates = empty(dtype, batch, n, size)
    if not loops.enter(
        array(symbols, torch.int64, batch, n), known, array(weight, dtype, size, columns),
        *(array(bias, dtype, size) for bias in biases), written(gates, dtype, batch, n, size),
    ):  # fmt: skip
        return None
    given = (*own, *controls, *fresh.first)
    record = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    found: Tensor = _apply(fresh, record, len(controls), symbols, known, gates, *given)
    return found


class _Run(Operation):
    @staticmethod
    def forward(
        ctx: Context,
        fresh: Fresh,
        record: bool,
        layers: int,
        symbols: Tensor,
        known: int,
        gates: Tensor,
        *given: Tensor,
    ) -> Tensor:
        weight, hidden_weight = given[:2]
        controls, first = given[4 : 4 + layers], given[4 + layers :]
        control = controls if layers == 2 else [torch.cat(parts) for parts in (controls[::2], controls[1::2])]
        every = (gates, weight[:, known:], hidden_weight, *control, *first)
        kept, (hidden, *_) = find_passes(fresh.name).forward(record, fresh.numbers, every)
        ctx.save_for_backward(symbols, *given)
        ctx.kept, ctx.name, ctx.known = kept, fresh.name, known
        ctx.sizes = [len(bias) for bias in controls[1::2]]
        (batch, n, units), dtype = hidden.shape, hidden.dtype
        shown = empty(dtype, batch, n + 1, units)
        numbers = written(shown, dtype, batch, n + 1, units)
        numbers[:, 0] = 0
        numbers[:, 1:] = array(hidden, dtype, batch, n, units)
        return shown

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        refuse_second_derivatives()
        symbols, weight = ctx.saved_tensors[:2]  # torch complains if somebody has changed one of them
        found = find_passes(ctx.name).backward(ctx.kept, (grad[:, 1:].contiguous(),))
        gates, by_reading, by_hidden, by_control, by_bias, *first = found
        assert gates is not None
        assert by_reading is not None
        (batch, n, size), columns, dtype, known = gates.shape, weight.shape[1], weight.dtype, ctx.known
        by_weight, by_biases = empty(dtype, size, columns), empty(dtype, size)
        loops.leave(
            array(symbols, torch.int64, batch, n), known, array(gates, dtype, batch, n, size),
            array(by_reading, dtype, size, columns - known), written(by_weight, dtype, size, columns),
            written(by_biases, dtype, size),
        )  # fmt: skip
        controls: list[Tensor | None] = [by_control, by_bias]
        if len(ctx.sizes) > 1:
            assert by_control is not None
            assert by_bias is not None
            size = ctx.sizes[0]
            controls = [by_control[:size], by_bias[:size], by_control[size:], by_bias[size:]]
        return (None,) * 6 + (by_weight, by_hidden, by_biases, by_biases, *controls, *first)


_apply = plain_apply(_Run)
