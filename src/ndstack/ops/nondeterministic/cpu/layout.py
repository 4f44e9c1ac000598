"""Where the columns of a chart are.

A chart of one sequence is one flat array. The column of time t and configuration type b = (r, y),

    P_t[i, a | b],    the (i, a) contiguous, a = (q, x) the faster index,

begins at start[t] + b * stride[t] with i = first(t). Without a window first(t) is -1 and columns
grow with t (a packed triangle; groups of four times have equal strides, so that four columns go
through one loop). With a window D, first(t) is t - D and all columns are equally long, so that a
chart can be moved back in time. After the last number of a column there are zeros, enough to read whole
vectors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ndstack.errors import NdstackError

TILE = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The places of the columns for times 0 .. times - 1.

    Attributes:
        states: |Q|.
        symbols: |Gamma|.
        times: how many times the chart can hold, a multiple of four.
        band: the window D, or 0 without one.
        start, stride: [times], see above.
        size: how many numbers the columns of one sequence take.
    """

    states: int
    symbols: int
    times: int
    band: int
    start: npt.NDArray[np.int64]
    stride: npt.NDArray[np.int64]
    size: int

    @functools.cached_property
    def kinds(self) -> int:
        """|Q| |Gamma|, the number of configuration types."""
        return self.states * self.symbols

    @property
    def ends(self) -> int:
        """How many numbers the derivatives with respect to log alpha take: from time -1 on, then zeros."""
        return (self.times + 1) * self.kinds + 2 * TILE

    @functools.cached_property
    def actions(self) -> int:
        """How many log weights a step has."""
        return self.kinds * (2 * self.kinds + self.states)

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of a batch of charts: columns, log alpha, log total, mass, floor, and lost mass."""
        each = (batch, self.times, self.kinds)
        masses = (batch, self.times, self.band + 1, self.kinds) if self.band else (batch, 0, 0, 0)
        return (batch, self.size), each, each, masses, each, (batch, self.kinds + 1)

    def first_seen(self, time: int) -> int:
        """The first time whose columns the steps after `time` can see."""
        return max(time - self.band, 0) if self.band else 0

    def columns_until(self, time: int) -> int:
        """Where the columns of a time end."""
        return int(self.start[time] + self.kinds * self.stride[time])

    def size_until(self, time: int) -> int:
        """How many numbers the columns take up to a time, in whole groups of four times."""
        last = 4 * (time // 4) + 3
        return self.columns_until(last) + TILE if not self.band else self.size

    def columns_seen(self, time: int) -> slice:
        """The columns that the steps after `time` can see, including the zeros between them."""
        first = int(self.start[self.first_seen(time)]) if self.band else 0
        return slice(first, self.columns_until(time))

    def ends_until(self, time: int) -> int:
        """Where the derivatives with respect to log alpha of a time end."""
        return (time + 2) * self.kinds

    def is_sound(self) -> bool:
        """Whether the places of the columns are those that `layout` makes of the sizes."""
        known = layout(self.states, self.symbols, self.times, self.band)
        if self is known:
            return True
        same = np.array_equal(self.start, known.start) and np.array_equal(self.stride, known.stride)
        return self.size == known.size and same

    def cost(self, start: int, steps: int) -> float:
        """About how many multiply-adds the steps from `start` on take for one sequence."""
        span = self.band or start + steps
        each = self.states * self.kinds**2
        return steps * each * (span**2 / 2 if self.band or start else span**2 / 6 + span)


@functools.lru_cache(maxsize=256)
def layout(states: int, symbols: int, times: int, band: int) -> Layout:
    """The layout of a chart; the places of columns do not depend on `times`."""
    sizes: Sequence[object] = (states, symbols, times, band)
    if not all(type(number) is int for number in sizes):
        raise NdstackError(f"a chart of sizes {list(sizes)} given, expected whole numbers")
    kinds = states * symbols
    times = 4 * ((times + 3) // 4)
    group = np.arange(times, dtype=np.int64) // 4
    width = np.full(times, (band + 4) * kinds + 2 * TILE) if band else (4 * group + 4) * kinds
    stride = TILE * ((width + TILE - 1) // TILE)
    ends = np.cumsum(stride * kinds)
    start = ends - stride * kinds + (TILE if band else 0)
    size = int(ends[-1]) + TILE
    return Layout(states, symbols, times, band, start, stride, size)
