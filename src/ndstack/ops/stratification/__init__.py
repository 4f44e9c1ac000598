"""Stratification stacks: all that the rest of the package may use of this folder.

`naive.py` has the equations in plain torch, `loops.py` and `step_loops.py` the compiled version, of which
`cpu.py` makes differentiable operations.
"""

from ndstack.ops.stratification.operation import scan, step, step_from_hidden

__all__ = ["scan", "step", "step_from_hidden"]
