"""Whole sequences by compiled code, as `guarded_scan` wants it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ndstack.ops.nondeterministic.chart import Chart
from ndstack.ops.nondeterministic.cpu import scan_loops
from ndstack.ops.nondeterministic.cpu.backward import Adjoint
from ndstack.ops.nondeterministic.cpu.layout import layout
from ndstack.ops.nondeterministic.limits import LIMITS
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime.addresses import array, written, zeros
from ndstack.ops.runtime.threads import share


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
    limits = LIMITS[dtype], setting.strict

    def work(lo: int, hi: int) -> None:
        scan_loops.forward(shape, past, lo, hi, 0, given, *shown, trusted, *limits)

    share(batch, work, at.cost(0, steps) * batch)
    return chart, reading, attention, torch.from_numpy(trusted)


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
    sure = array(trusted, torch.bool, batch)

    def work(lo: int, hi: int) -> None:
        sums = [written(zeros(dtype, 1, size), dtype, 1, size) for size in (at.size, at.ends)]
        scan_loops.backward(shape, past, Adjoint(*sums), False, lo, hi, 0, given, shown, received, into, sure)

    share(batch, work, 2 * at.cost(0, steps) * batch)
    return result
