"""What torch operations around compiled code share: threads over the rows of a batch, and memory.

The kernels release the interpreter's lock, so ordinary threads are enough. They live for one call
only: nothing is left that could spin beside torch's own threads or be lost in a fork. There are as
many as torch would use, `torch.set_num_threads` sets both.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.kernels.tracing import transformed

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


def as_array(tensor: Tensor) -> Any:
    """The numbers of a CPU tensor as a contiguous numpy array: its own, if it is contiguous."""
    return tensor.detach().contiguous().numpy()


def with_stride(tensor: Tensor) -> Tensor:
    """The same numbers, each row in one piece, the rows not necessarily one after the other."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def locate(tensor: Tensor | None) -> tuple[int, int]:
    """The address of a tensor and the stride between its rows; zeros for None."""
    return (0, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


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


def check_state(fits: bool) -> None:
    """Compiled code trusts sizes, so a state of other sizes must not get that far."""
    if not fits:
        raise NdstackError("the state belongs to a stack of other sizes; use start() of this one")
