"""Triton, where it is installed: whether it can be used, and how kernels are started.

Kernels are imported when they are first needed, since the package `triton` is optional. With the environment
variable TRITON_INTERPRET=1 Triton interprets them with numpy, on tensors of the CPU, which is how they are
tested where there is no GPU.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch


def installed() -> bool:
    """Return whether there is a package `triton`."""
    return importlib.util.find_spec("triton") is not None


def version() -> str | None:
    """Return the version of the package `triton`; None if there is none."""
    return importlib.metadata.version("triton") if installed() else None


def interpreted() -> bool:
    """Return whether kernels that are made now will be interpreted."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def usable(device: torch.device) -> bool:
    """Return whether kernels can run on a device: on CUDA, or on the CPU if they are interpreted."""
    return installed() and (device.type == "cuda" or (device.type == "cpu" and interpreted()))


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less, since Triton has no other sizes."""
    return 1 << max(number - 1, 0).bit_length()


class Fixed:
    """A kernel with the first of its configurations; the interpreter cannot measure which one is best."""

    def __init__(self, kernel: Any, options: dict[str, int]) -> None:
        self.kernel, self.options = kernel, options

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """Return a function that starts the programs of a grid."""
        return lambda *given, **named: self.kernel[grid](*given, **named, **self.options)


class Placed:
    """A kernel that runs where its tensors are; Triton itself starts it on the current device."""

    def __init__(self, tuned: Any) -> None:
        self.tuned = tuned

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """Return a function that starts the programs of a grid; its first argument is a tensor."""

        def start(*given: Any, **named: Any) -> object:
            with torch.cuda.device(given[0].device):
                return self.tuned[grid](*given, **named)

        return start


def kernel(
    configurations: Sequence[dict[str, int]], key: Sequence[str], changes: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator for a kernel whose block sizes are chosen by measurement, `triton.autotune`.

    Args:
        configurations: sizes by name; `warps` is how many warps run a program.
        key: names of the arguments on which the choice depends.
        changes: names of the tensors that the kernel reads and changes, to be restored after a measurement.
    """
    import triton

    def make(function: Callable[..., None]) -> Any:
        compiled = triton.jit(function)
        sizes = [{name: size for name, size in one.items() if name != "warps"} for one in configurations]
        if interpreted():
            return Fixed(compiled, sizes[0])
        choices = [
            triton.Config(each, num_warps=one["warps"])
            for each, one in zip(sizes, configurations, strict=True)
        ]
        tuned = triton.autotune(configs=choices, key=list(key), restore_value=list(changes))
        return Placed(tuned(compiled))

    return make
