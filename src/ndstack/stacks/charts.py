"""Whether the charts that a nondeterministic stack is given, by hand or from a file, are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.cpu.carried import Place
from ndstack.ops.nondeterministic.cpu.layout import Layout, layout
from ndstack.ops.runtime.addresses import KIND


def charts_fit(state: Any, automaton: tuple[int, int, int, bool], vector_size: int | None) -> bool:
    """Whether what a state carries belongs to such an automaton, and is all of one piece.

    Args:
        state: with a reading of the right size.
        automaton: states, symbols, the window or 0, and whether it has the bottom fix.
        vector_size: of the vectors, if there are any.
    """
    place, time, vectors, batch = state.place, state.time, state.vectors, state.batch_size
    if type(time) is not int or time < 0 or not isinstance(state.history, tuple):
        return False
    if not isinstance(place, Place):
        fine = place is None and state.memory == ()
    else:
        at, latest = place.layout, place.time
        known = (at.states, at.symbols, at.band, place.bottom_fix) == automaton
        reached = 0 <= latest <= time if at.band else latest == time
        fine = known and reached and latest < at.times
        fine = fine and _tensors_fit(state.memory, place, batch, state.reading.device)
        time = latest
    if vector_size is None or vectors is None:
        return fine and vectors is None and vector_size is None
    wanted = (batch, time + 1, vector_size)
    here = isinstance(vectors, Tensor) and vectors.device == state.reading.device
    return fine and here and vectors.shape == wanted


def _tensors_fit(memory: Any, place: Place, batch: int, device: torch.device) -> bool:
    """Whether the tensors of charts have the sizes that their place says."""
    links = 2 if place.tape is None else 1
    if not isinstance(memory, tuple) or len(memory) != 6 + links:
        return False
    if not all(isinstance(part, Tensor) and part.layout is torch.strided for part in memory):
        return False
    at = place.layout
    shapes = at.shapes(batch)
    if place.tape is None:
        shapes = (*shapes, (batch, at.size), (batch, at.ends))
    same = all(part.shape == shape for part, shape in zip(memory, shapes, strict=False))
    wide = memory[0].dtype in KIND and all(part.dtype is torch.float64 for part in memory[1:6])
    near = all(part.device.type in ("cpu", device.type) for part in memory)
    return same and wide and near and (place.tape is not None or _is_layout(at))


def _is_layout(at: Layout) -> bool:
    """Whether the places of columns are those that the sizes of a chart make."""
    known = layout(at.states, at.symbols, at.times, at.band)
    if at is known:
        return True
    places = np.array_equal(at.start, known.start) and np.array_equal(at.stride, known.stride)
    return at.size == known.size and places


def joined(history: tuple[Any, ...], batch: int, size: int, time: int | None = None) -> Tensor:
    """All log weights so far, [B, time, A]; at whatever time, if that is None."""
    if not all(isinstance(part, Tensor) and part.dim() in (2, 3) for part in history):
        raise NdstackError("a history given that is no sequence of log weights; use what a step gave")
    parts = [part if part.dim() == 3 else part[:, None] for part in history]
    steps = sum(part.shape[1] for part in parts)
    if steps != (steps if time is None else time) or any(
        part.shape != (batch, part.shape[1], size) for part in parts
    ):
        raise NdstackError(
            f"a state at time {time} with a history of {steps} steps given, expected as many, of {batch} "
            f"stacks and {size} log weights each; use a state that start() or a step gave"
        )
    return torch.cat(parts, 1)
