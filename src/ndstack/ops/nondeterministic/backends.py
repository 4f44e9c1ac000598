"""What the backends of the nondeterministic stack have of their own (see `ops.runtime.backends`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

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


def fuses(setting: Setting, reads_all: bool) -> bool:
    """Whether an LSTM and such a stack are one operation on a GPU (see `triton.run`).

    Args:
        reads_all: whether readings are the plain probabilities of stacks of symbols with weights as given.
    """
    plain = setting.window is None and setting.bottom_fix and not setting.attend
    return setting.backend == "triton" and plain and reads_all


def run_fused(
    inputs: Tensor, weights: Sequence[Tensor], first: Sequence[Tensor], setting: Setting
) -> triton_run.FusedRun:
    """An LSTM with its action layer and fresh stacks over whole sequences, where `fuses` says so."""
    found: triton_run.FusedRun = triton_run.run(inputs, weights, first, setting)
    return found
