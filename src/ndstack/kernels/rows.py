"""What torch operations around compiled code share: threads over the rows of a batch, and memory.

The kernels release the interpreter's lock, so ordinary threads are enough. They live for one call
only: nothing is left that could spin beside torch's own threads or be lost in a fork. There are as
many as torch would use, `torch.set_num_threads` sets both.
"""

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.kernels.tracing import transformed

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])

_WORTH_A_THREAD = 4_000_000


def over_rows(kernel: Callable[..., None], rows: int, cost: int, *arguments: Any) -> None:
    """Call `kernel(first, last, *arguments)` so that all of 0..rows-1 is covered.

    Args:
        kernel: compiled without the interpreter's lock; writes its results into its arguments.
        rows: how many rows there are.
        cost: multiply-adds a row, to decide whether threads pay.
        arguments: passed on to every call.
    """
    threads = min(rows, torch.get_num_threads(), rows * cost // _WORTH_A_THREAD)
    if threads <= 1:
        kernel(0, rows, *arguments)
        return
    bounds = [rows * k // threads for k in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(kernel, first, last, *arguments) for first, last in itertools.pairwise(bounds)]
        for call in calls:
            call.result()


def with_stride(tensor: Tensor) -> Tensor:
    """The same numbers, each row in one piece, the rows not necessarily one after the other."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def compilable(tensor: Tensor) -> bool:
    """Whether compiled code can take it; tracers and transforms must have the plain version instead."""
    return (
        tensor.is_cpu
        and (tensor.dtype is torch.float32 or tensor.dtype is torch.float64)
        and not torch.compiler.is_compiling()
        and not transformed()
    )


def refuse_second_derivatives() -> None:
    """To be called by a derivative that is not differentiable itself."""
    if torch.is_grad_enabled():
        raise NdstackError(
            "second derivatives of this stack are not available here; leave out create_graph=True"
        )


def in_own_precision(function: Wrapped) -> Wrapped:
    """Let a function compute in the dtypes that it is given, in a region of `torch.autocast` too.

    Autocast would hand it products in bfloat16, which compiled code cannot read.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
            return function(*arguments, **options)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*arguments, **options)

    return wrapped  # type: ignore[return-value]
