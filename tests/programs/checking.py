"""Whether what a program computes is right: within a tolerance, or as exact as rounding allows."""

from __future__ import annotations

from torch import Tensor

from tests.programs.drawing import Program
from tests.programs.running import Run, WrongError

TOLERANCE = {"float32": 1e-5, "float64": 1e-9}
TIMES_ROUNDING = 10.0
"""A larger error is no fault if rounding what the reference is given makes one a tenth as large."""


def _difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The largest difference, relative to the largest number or 1, and that."""
    size = max(1.0, theirs.nan_to_num().abs().max().item())
    return (ours - theirs).nan_to_num().abs().max().item() / size, size


def _check(program: Program) -> None:
    """Raises `WrongError`, or whatever the library raises."""
    done = Run(program)
    done.run()
    again: list[Run] = []
    for place, (what, ours, theirs, exact) in enumerate(done.compared):
        error, size = _difference(ours, theirs) if exact else (0.0, 1.0)
        if error <= TOLERANCE[program.dtype]:
            continue
        if not again:
            again = [Run(program, jitter) for jitter in (1, 2, 3)]
            for other in again:
                other.run()
        rounding = max(_difference(other.compared[place][2], theirs)[0] for other in again)
        if not error <= TIMES_ROUNDING * rounding:
            raise WrongError(
                f"{what}: off by {error:.1e}, relative to {size:.1e}, of which rounding makes {rounding:.1e}"
            )


def run(program: Program) -> str | None:
    """None if all is well, else what is wrong in one line."""
    try:
        _check(program)
    except Exception as error:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:300]}"
    return None
