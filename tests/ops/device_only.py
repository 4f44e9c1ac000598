"""A mode in which tensors of the CPU are treated as if they were on a GPU: nothing may look at them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torchgen
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

LOOKS = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique_dim"}
"""Operations that wait for the device because the host has to know a number."""


@functools.cache
def cuda_operations() -> frozenset[str]:
    """The operations of torch that CUDA has, by what torch itself was generated from."""
    source = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    found = set()
    for entry in source.read_text().split("\n- func: ")[1:]:
        name, rest = entry.split("(", 1)
        keys = rest.split("dispatch:")[1] if "dispatch:" in rest else "Composite"
        if "CUDA" in keys or "Composite" in keys or "structured_delegate" in rest:
            found.add(name)
    return frozenset(found)


def _refuse_copy(tensor: Tensor) -> Tensor:
    raise AssertionError("a copy to the host")


class DeviceOnly(TorchDispatchMode):
    """Fails where an operation looks at numbers, copies them to the host, or is missing on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = mock.patch.object(Tensor, "cpu", _refuse_copy)

    def __enter__(self) -> DeviceOnly:
        self.copies.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.copies.stop()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.removesuffix(".default")
        if func.namespace == "aten":
            assert name.split(".")[0] not in LOOKS, f"{name} waits for the device"
            assert name in cuda_operations(), f"{name} has no version for CUDA"
            chosen = args[1] if name.startswith("index") and len(args) > 1 else ()
            masks = [part for part in chosen if isinstance(part, Tensor)] if isinstance(chosen, list) else []
            assert all(mask.dtype != torch.bool for mask in masks), f"{name} by a mask waits for the device"
        return func(*args, **kwargs)
