"""What the backends of the nondeterministic stack have of their own (see `ops.runtime.backends`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ndstack.ops.nondeterministic.portable.chart import DeviceChart
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.portable import scan as portable
    from ndstack.ops.nondeterministic.triton import run as triton_run
    from ndstack.ops.nondeterministic.triton import scan as triton
else:
    portable = LazyModule("ndstack.ops.nondeterministic.portable.scan")
    triton = LazyModule("ndstack.ops.nondeterministic.triton.scan")
    triton_run = LazyModule("ndstack.ops.nondeterministic.triton.run")


def kernels(backend: str) -> portable.Kernels:
    """What does the parts that go step by step, for a backend that is not compiled."""
    found: portable.Kernels = triton.KERNELS if backend == "triton" else portable.KERNELS
    return found


def fuses(setting: Setting, times: int) -> bool:
    """Whether an LSTM and such a stack are one operation on a GPU (see `triton.run`).

    Args:
        times: for how many times a chart has to have room; its places are counted in 32 bits.
    """
    return setting.backend == "triton" and (setting.states * setting.symbols * times) ** 2 < 2**31


def run_fused(
    inputs: Tensor,
    weights: Sequence[Tensor],
    first: Sequence[Tensor],
    vectors: Tensor | None,
    chart: DeviceChart,
    *,
    normalized: bool,
    by_state: bool,
) -> triton_run.FusedRun:
    """An LSTM with its action layer and its stacks over whole sequences, where `fuses` says so."""
    found: triton_run.FusedRun = triton_run.run(
        inputs, weights, first, vectors, chart, normalized=normalized, by_state=by_state
    )
    return found
