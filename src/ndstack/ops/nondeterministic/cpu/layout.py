"""Where the compiled kernels keep the columns of a chart.

A chart of one sequence is one flat array. The column of time t and configuration type b = (r, y),

    P_t[i, a | b],    the (i, a) contiguous, a = (q, x) the faster index,

begins at start[t] + b * stride[t] with i = first(t). Without a window first(t) is -1 and columns
grow with t (a packed triangle; groups of four times have equal strides, so that four columns go
through one loop). With a window D, first(t) is t - D and all columns are equally long, so that a
chart can be moved back in time. After the last number of a column are zeros, enough for reading whole
vectors.
"""

from __future__ import annotations

import dataclasses
import functools

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
        size: how many numbers a chart of one sequence has.
    """

    states: int
    symbols: int
    times: int
    band: int
    start: npt.NDArray[np.int64]
    stride: npt.NDArray[np.int64]
    size: int

    @property
    def kinds(self) -> int:
        """|Q| |Gamma|, the number of configuration types."""
        return self.states * self.symbols

    @property
    def ends(self) -> int:
        """How many numbers the derivatives by log alpha take, from time -1 on, with zeros after."""
        return (self.times + 1) * self.kinds + 2 * TILE

    @property
    def actions(self) -> int:
        """How many log weights a step has."""
        return self.kinds * (2 * self.kinds + self.states)

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """Of a batch of charts: columns, log alpha, log total, mass, floor, and what is lost."""
        each = (batch, self.times, self.kinds)
        masses = (batch, self.times, self.band + 1, self.kinds) if self.band else (batch, 0, 0, 0)
        return (batch, self.size), each, each, masses, each, (batch, self.kinds + 1)


@functools.lru_cache(maxsize=256)
def layout(states: int, symbols: int, times: int, band: int) -> Layout:
    """The layout of a chart; the places of columns do not depend on `times`."""
    if not all(type(number) is int for number in (states, symbols, times, band)):
        raise NdstackError(f"a chart of sizes {[states, symbols, times, band]} given, expected whole numbers")
    kinds = states * symbols
    times = 4 * ((times + 3) // 4)
    group = np.arange(times, dtype=np.int64) // 4
    width = np.full(times, (band + 4) * kinds + 2 * TILE) if band else (4 * group + 4) * kinds
    stride = TILE * ((width + TILE - 1) // TILE)
    ends = np.cumsum(stride * kinds)
    start = ends - stride * kinds + (TILE if band else 0)
    size = int(ends[-1]) + TILE
    return Layout(states, symbols, times, band, start, stride, size)
