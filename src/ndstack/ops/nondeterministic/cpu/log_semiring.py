"""The log semiring by compiled code, for steps that even float64 is too narrow for (see `log_space`).

What `semirings.LOG` does with tensors of all terms of a sum, this does term by term.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.semirings import Log
from ndstack.ops.runtime.addresses import array, empty, written, zeros
from ndstack.ops.runtime.autograd import Context, Operation, refuse_second_derivatives
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.threads import COST_OF_EXPONENTIAL, share

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import log_loops, log_pops
else:
    log_loops = LazyModule("ndstack.ops.nondeterministic.cpu.log_loops")
    log_pops = LazyModule("ndstack.ops.nondeterministic.cpu.log_pops")

POPS = "bikqxuy,bkuyr->biqxry"
"""The equation of the pop rule in `reference`; its left factor, most of the chart, is zero unless i < k."""


class _Plan(NamedTuple):
    """How an equation becomes products of matrices [..., m, k] and [..., n, k].

    Attributes:
        left, right: the orders of the dimensions of both tensors.
        batch, rows, columns: how many dimensions are common to all, or belong to m, or to n.
        output: the order in which the result, [batch, rows, columns], has them.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    batch: int
    rows: int
    columns: int
    output: tuple[int, ...]


@functools.cache
def _plan(equation: str) -> _Plan:
    inputs, output = equation.split("->")
    left, right = inputs.split(",")
    batch = [letter for letter in left if letter in right and letter in output]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    summed = [letter for letter in left if letter in right and letter not in output]
    order = [*batch, *rows, *columns]
    return _Plan(
        tuple(left.index(letter) for letter in (*batch, *rows, *summed)),
        tuple(right.index(letter) for letter in (*batch, *columns, *summed)),
        len(batch),
        len(rows),
        len(columns),
        tuple(order.index(letter) for letter in output),
    )


class _CompiledLog(Log):
    """As `Log`, for tensors in float64 on a CPU; every dimension that is not summed is in the output."""

    def einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        if equation == POPS and log_pops.fits(left, right):
            return log_pops.pops(left, right)
        plan = _plan(equation)
        first, second = left.permute(plan.left), right.permute(plan.right)
        batch, inner = first.shape[: plan.batch], first.shape[plan.batch + plan.rows :]
        rows = first.shape[plan.batch : plan.batch + plan.rows]
        columns = second.shape[plan.batch : plan.batch + plan.columns]
        count, k = math.prod(batch), math.prod(inner)
        product: Tensor = _LogProduct.apply(
            first.reshape(count, math.prod(rows), k), second.reshape(count, math.prod(columns), k)
        )
        return product.view(*batch, *rows, *columns).permute(plan.output)


class _LogProduct(Operation):
    @staticmethod
    def forward(ctx: Context, left: Tensor, right: Tensor) -> Tensor:
        batch, rows, k = left.shape
        columns, kind = right.shape[1], torch.float64
        left, right = left.contiguous(), right.contiguous()
        out = empty(kind, batch, rows, columns)
        arrays = array(left, kind, batch, rows, k), array(right, kind, batch, columns, k)
        into = written(out, kind, batch, rows, columns)
        share(batch, log_loops.forward, COST_OF_EXPONENTIAL * batch * rows * columns * k, *arrays, into)
        ctx.save_for_backward(left, right, out)
        return out

    @staticmethod
    def backward(ctx: Context, *received: Tensor) -> tuple[Tensor, Tensor]:
        refuse_second_derivatives()
        left, right, out = ctx.saved_tensors
        (batch, rows, k), columns, kind = left.shape, right.shape[1], torch.float64
        given = [array(left, kind, batch, rows, k), array(right, kind, batch, columns, k)]
        given += [array(tensor, kind, batch, rows, columns) for tensor in (out, received[0])]
        by_left, by_right = zeros(kind, batch, rows, k), zeros(kind, batch, columns, k)
        into = written(by_left, kind, batch, rows, k), written(by_right, kind, batch, columns, k)
        share(batch, log_loops.backward, COST_OF_EXPONENTIAL * batch * rows * columns * k, *given, *into)
        return by_left, by_right


COMPILED_LOG = _CompiledLog()
