"""Lang's algorithm as tensor functions: all that the rest of the package may use of this folder.

| file | what it holds |
|---|---|
| `reference.py`, `semirings.py` | the recurrence as the dissertation prints it, over any semiring |
| `guarded_scan.py` | whole sequences, differentiable, by any backend |
| `guarded_steps.py` | steps after steps, for stacks that carry a chart |
| `precision_guard.py`, `precision_limits.py`, `precision_margin.py` | where wider formats take over |
| `invalid_sequences.py` | what becomes of sequences that are given a nan |
| `log_space.py` | by `reference.py` with the sums of `cpu/log_semiring.py`, or by `cpu/scaled_chart.py` |
| `chart.py`, `store.py` | the chart as one value, and its memory |
| `cpu/` | compiled; `forward.py` is one step (push, replace, pop), `backward.py` its gradient |
| `portable/` | torch operations, for any device |
| `backends.py` | which of them runs where |

Importing this package compiles nothing and does not import numba.
"""

from ndstack.ops.nondeterministic.backends import fuses, run_fused
from ndstack.ops.nondeterministic.chart import Chart, PackedChart
from ndstack.ops.nondeterministic.cpu.steps import Advanced, advance
from ndstack.ops.nondeterministic.guarded_scan import scan
from ndstack.ops.nondeterministic.guarded_steps import (
    History,
    Stepped,
    join_history,
    merge_history,
    run_steps,
    start_chart,
)
from ndstack.ops.nondeterministic.invalid_sequences import invalid_steps, invalidate_together, mark, withhold
from ndstack.ops.nondeterministic.log_space import in_log_space
from ndstack.ops.nondeterministic.portable.chart import DeviceChart
from ndstack.ops.nondeterministic.portable.fixed import FixedChart, start_fixed, step_fixed
from ndstack.ops.nondeterministic.portable.steps import distrusted, start_device_chart, warn_of_loss
from ndstack.ops.nondeterministic.precision_guard import next_format, redo
from ndstack.ops.nondeterministic.settings import Setting, action_sizes

__all__ = [
    "Advanced",
    "Chart",
    "DeviceChart",
    "FixedChart",
    "History",
    "PackedChart",
    "Setting",
    "Stepped",
    "action_sizes",
    "advance",
    "distrusted",
    "fuses",
    "in_log_space",
    "invalid_steps",
    "invalidate_together",
    "join_history",
    "mark",
    "merge_history",
    "next_format",
    "redo",
    "run_fused",
    "run_steps",
    "scan",
    "start_chart",
    "start_device_chart",
    "start_fixed",
    "step_fixed",
    "warn_of_loss",
    "withhold",
]
