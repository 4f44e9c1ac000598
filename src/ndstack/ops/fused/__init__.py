"""Compiled loops of a controller together with its stack, on CPU tensors.

This module is all that the rest of the package may use of this folder: `superposition.run`,
`stratification.run` and `nondeterministic.run` for whole sequences; `step_superposition`,
`step_stratification` and `nondeterministic_step.step` for single steps; `in_graph` for whole sequences in
graphs of `torch.compile`; `one_hot.run` for whole sequences of symbols. `ndstack.nn.fused` says which pairs
there are, and when they are used. Importing this package compiles nothing and does not import numba.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ndstack.ops.fused import in_graph, one_step
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.stack_step import NO_LIMIT

if TYPE_CHECKING:
    from ndstack.ops.fused import (
        nondeterministic,
        nondeterministic_step,
        one_hot,
        stratification,
        superposition,
    )
    from ndstack.ops.stratification import cpu as _stratification
    from ndstack.ops.superposition import cpu as _superposition
else:
    nondeterministic = LazyModule("ndstack.ops.fused.nondeterministic")
    nondeterministic_step = LazyModule("ndstack.ops.fused.nondeterministic_step")
    one_hot = LazyModule("ndstack.ops.fused.one_hot")
    stratification = LazyModule("ndstack.ops.fused.stratification")
    superposition = LazyModule("ndstack.ops.fused.superposition")
    _stratification = LazyModule("ndstack.ops.stratification.cpu")
    _superposition = LazyModule("ndstack.ops.superposition.cpu")

__all__ = [
    "in_graph",
    "nondeterministic",
    "nondeterministic_step",
    "one_hot",
    "step_stratification",
    "step_superposition",
    "stratification",
    "superposition",
]

step_superposition = functools.partial(one_step.step_lstm, _superposition)
"""One step of an LSTM and superposition stacks (see `one_step.step_lstm`)."""

step_stratification = functools.partial(one_step.step_lstm, _stratification, NO_LIMIT)
"""One step of an LSTM and stratification stacks (see `one_step.step_lstm`)."""
