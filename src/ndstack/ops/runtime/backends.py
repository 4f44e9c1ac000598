"""Which backend runs the stacks where.

| device | "auto" means |
|---|---|
| CPU | "cpu", compiled by numba |
| CUDA, with the package `triton` | "triton", torch operations and kernels of our own |
| any other | "portable", torch operations alone |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from ndstack.errors import NdstackError
from ndstack.ops.runtime import triton_launch

NAMES = ("auto", "cpu", "portable", "triton", "reference")
_forced = "auto"


def choose(device: torch.device, wanted: str = "auto") -> str:
    """The backend for tensors on a device.

    Args:
        wanted: a name; "auto" for what `use` says, or what is best there.
    """
    wanted = _forced if wanted == "auto" else wanted
    if wanted == "triton" and not triton_launch.usable(device):
        raise NdstackError(
            f"backend 'triton' given tensors on {device}, expected CUDA and the package triton; "
            "install ndstack[gpu], or use 'auto'"
        )
    if wanted != "auto":
        return wanted
    if device.type == "cpu":
        return "cpu"
    return "triton" if device.type == "cuda" and triton_launch.installed() else "portable"


def forced() -> str:
    """The backend that `use` asks for, or "auto"."""
    return _forced


def use(backend: str) -> None:
    """Let all stacks run by one backend, or each by what is best for its device, "auto"."""
    global _forced
    if backend not in NAMES or backend == "reference":
        known = ", ".join(name for name in NAMES if name != "reference")
        raise NdstackError(f"backend is {backend!r}, expected one of {known}")
    _forced = backend


@contextlib.contextmanager
def using(backend: str) -> Iterator[None]:
    """Return a context in which `use(backend)` holds."""
    before = _forced
    use(backend)
    try:
        yield
    finally:
        use(before)


def describe() -> dict[str, str]:
    """The backend of every kind of device that there is, as things are now."""
    names = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if torch.backends.mps.is_available():
        names.append("mps")
    return {name: choose(torch.device(name)) for name in names}
