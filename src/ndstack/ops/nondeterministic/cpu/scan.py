"""Whole sequences by compiled code, as `guarded_scan` wants it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu import scan_loops
from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.nondeterministic.cpu.forward import Past, Shape
from ndstack.ops.nondeterministic.cpu.layout import Layout, layout
from ndstack.ops.nondeterministic.cpu.long import loops as long_loops
from ndstack.ops.nondeterministic.precision_limits import LIMITS
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime.addresses import Array, array, written, zeros
from ndstack.ops.runtime.threads import share

LONG = 8_000_000
"""A scan goes by blocks of steps (see `long.forward`) if a step can see so many bytes of the chart."""

BLOCK = 30
"""How many steps a block has."""


def run(actions: Tensor, setting: Setting) -> tuple[Chart, Tensor, Tensor, Tensor]:
    """The chart, the probabilities, the attention (empty if not wanted), and which sequences to trust.

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
    """
    (batch, steps), dtype = actions.shape[:2], actions.dtype
    band = 0 if setting.window is None or setting.window > steps else setting.window
    at = layout(setting.states, setting.symbols, steps + 1, band)
    chart = Chart.empty(batch, at, setting.bottom_fix, dtype)
    span = (batch, steps, at.kinds, steps + 1) if setting.attend else (0, 0, 0, 0)
    reading, attention = zeros(dtype, batch, steps, at.kinds), zeros(dtype, *span)
    trusted = np.zeros(batch, np.bool_)
    given = array(actions, dtype, batch, steps, at.actions)
    shown = written(reading, dtype, batch, steps, at.kinds), written(attention, dtype, *span)
    shape, past = chart.arrays(steps)
    limits, long = (LIMITS[dtype], setting.strict), _is_long(at, steps, dtype)

    def work(lo: int, hi: int) -> None:
        if not long:
            scan_loops.forward(shape, past, lo, hi, 0, given, *shown, trusted, *limits)
            return
        for row in range(lo, hi):
            trusted[row] = _by_blocks(shape, past, row, given, *shown, *limits)

    share(batch, work, at.cost(0, steps) * batch)
    return chart, reading, attention, torch.from_numpy(trusted)


def _is_long(at: Layout, steps: int, dtype: torch.dtype) -> bool:
    """Whether a scan goes by blocks."""
    seen = at.band * at.band if at.band else steps * (steps + 1) // 2
    return seen * at.kinds**2 * dtype.itemsize >= LONG


def _by_blocks(
    shape: Shape,
    past: Past,
    row: int,
    actions: Array,
    reading: Array,
    attention: Array,
    limit: float,
    strict: bool,
) -> bool:
    """One sequence by blocks of steps, and step by step where a block leaves the range of its dtype.

    Returns:
        Whether the sequence can be trusted.
    """
    steps, time, fine = actions.shape[1], 0, np.ones(1, np.bool_)
    own = Past(*(part[row : row + 1] for part in past))
    while time < steps and fine[0]:
        time = long_loops.forward(shape, past, row, time, actions, reading, attention, limit, strict, BLOCK)
        end = min(time + BLOCK, steps)
        if time < steps:
            here = (slice(row, row + 1), slice(time, end))
            shown = reading[here], attention[here] if attention.size else attention
            scan_loops.forward(shape, own, 0, 1, time, actions[here], *shown, fine, limit, strict)
        time = end
    return bool(fine[0])


def gradient(
    chart: Chart,
    setting: Setting,
    actions: Tensor,
    outputs: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    trusted: Tensor,
) -> Tensor:
    """The derivatives with respect to the actions; zeros for sequences that are not to be trusted.

    Args:
        chart: from `run`.
        outputs: the probabilities and the attention.
        grads: the derivatives with respect to these; None if the attention does not count.
    """
    batch, steps = actions.shape[:2]
    at, dtype = chart.store.layout, chart.dtype
    shape, past = chart.arrays(steps)
    result = zeros(dtype, batch, steps, at.actions)
    each, span = (batch, steps, at.kinds), (batch, steps, at.kinds, steps + 1)
    attention = grad_attention = array(actions.new_zeros(0, 0, 0, 0), dtype, 0, 0, 0, 0)
    if grads[1] is not None:
        attention, grad_attention = array(outputs[1], dtype, *span), array(grads[1], dtype, *span)
    shown, received = (
        (array(outputs[0], dtype, *each), attention),
        (array(grads[0], dtype, *each), grad_attention),
    )
    given = array(actions, dtype, batch, steps, at.actions)
    into = written(result, dtype, batch, steps, at.actions)
    sure, long = array(trusted, torch.bool, batch), _is_long(at, steps, dtype)

    def work(lo: int, hi: int) -> None:
        sums = [written(zeros(dtype, 1, size), dtype, 1, size) for size in (at.size, at.ends)]
        known = given, shown, received, into, sure
        if not long:
            scan_loops.backward(shape, past, Adjoint(*sums), lo, hi, 0, *known)
        else:
            long_loops.backward(shape, past, Adjoint(*sums), lo, hi, *known, BLOCK)

    share(batch, work, 2 * at.cost(0, steps) * batch)
    return result
