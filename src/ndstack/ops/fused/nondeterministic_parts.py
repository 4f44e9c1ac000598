# mypy: allow-untyped-defs, allow-untyped-calls
"""The backward pass of `nondeterministic_loops` on a part of a batch, as `threads.share` calls it."""

from __future__ import annotations

import numpy as np

from ndstack.ops.fused import nondeterministic_loops as loops
from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.runtime.simd import entry


@entry
def backward(
    lo,
    hi,
    shape,
    past,
    adjoint,
    carried,
    older,
    start,
    net,
    first,
    normalized,
    by_state,
    trace,
    given,
    out,
):
    """Do what the backward pass does; an adjoint that is not carried needs no rows, only its sizes."""
    chart, alpha = adjoint.chart, adjoint.alpha
    if not carried:
        chart, alpha = (
            np.empty((1, chart.shape[1]), chart.dtype),
            np.empty((1, alpha.shape[1]), alpha.dtype),
        )
    loops.backward(
        shape, past, Adjoint(chart, alpha), carried, older, lo, hi, start, net, first, normalized, by_state,
        trace, given, out,
    )  # fmt: skip


def example_of_backward(dtype: str) -> tuple[object, ...]:
    """Arguments of the types that `backward` is called with (see `runtime.beside`)."""
    shape, past, adjoint, carried, older, lo, hi, *rest = loops.example_of_backward(dtype)
    return lo, hi, shape, past, adjoint, carried, older, *rest
