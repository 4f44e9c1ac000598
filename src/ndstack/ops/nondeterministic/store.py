"""The memory in which charts lie (see `chart`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.cpu.layout import Layout
from ndstack.ops.nondeterministic.cpu.tables import ChartTable
from ndstack.ops.runtime.addresses import address, empty, of_table, zeros


class Filled:
    """Up to which time the memory of charts has been written, for all that share it.

    States may be continued by several threads at once, so the right to write is taken in one indivisible
    operation, before anything is written.
    """

    __slots__ = ("_ends",)

    def __init__(self, time: int) -> None:
        self._ends = {time}

    def claim(self, time: int) -> bool:
        """Whether the caller alone may write what follows this time."""
        try:
            self._ends.remove(time)
        except KeyError:
            return False
        return True

    def reached(self, time: int) -> None:
        """Whoever had claimed the memory has written it up to this time."""
        self._ends = {time}


@dataclasses.dataclass(eq=False, slots=True)
class Store:
    """The memory of a batch of charts, for the times of a layout; the batch is the first dimension.

    Attributes:
        columns: [B, size], the columns P (see `layout`), float32 or float64; all else is float64.
        log_alpha: [B, times, K], log alpha, normalised at each time.
        log_total: [B, times, K], log alpha[t] before normalisation, given normalised alpha[t-1].
        mass: [B, times, D + 1, K], the mass of a column from its j-th i on; empty without a window.
        floor: [B, times, K], the smallest positive number of a column.
        bottom_fix: whether the initial bottom symbol can be replaced and uncovered.
        filled: shared by all stores with the same memory, that of detached charts for instance.
    """

    columns: Tensor
    log_alpha: Tensor
    log_total: Tensor
    mass: Tensor
    floor: Tensor
    layout: Layout
    bottom_fix: bool
    filled: Filled

    @classmethod
    def empty(cls, batch: int, layout: Layout, bottom_fix: bool, dtype: torch.dtype, time: int = 0) -> Self:
        """Memory that holds anything, to be written up to some time."""
        columns, *others = layout.shapes(batch)[:5]
        make = zeros if layout.band else empty
        alpha, total, mass, floor = (empty(torch.float64, *shape) for shape in others)
        return cls(make(dtype, *columns), alpha, total, mass, floor, layout, bottom_fix, Filled(time))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """All tensors, in the order of `Layout.shapes`."""
        return self.columns, self.log_alpha, self.log_total, self.mass, self.floor

    @property
    def batch(self) -> int:
        """How many charts there are."""
        return self.columns.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the columns."""
        return self.columns.dtype

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same memory with every tensor changed."""
        columns, alpha, total, mass, floor = (change(tensor) for tensor in self.tensors)
        return type(self)(columns, alpha, total, mass, floor, self.layout, self.bottom_fix, self.filled)

    def contiguous(self) -> Self:
        """The same memory, or a copy if a tensor of it is not contiguous."""
        if all(tensor.is_contiguous() for tensor in self.tensors):
            return self
        return self.map(Tensor.contiguous)

    def addresses(self) -> list[int]:
        """Where the tensors are now; an error unless they are what the layout says."""
        dtypes = (self.dtype, *[torch.float64] * 4)
        parts = zip(self.tensors, dtypes, self.layout.shapes(self.batch), strict=False)
        return [address(tensor, dtype, *shape) for tensor, dtype, shape in parts]

    def table(self) -> ChartTable:
        """What compiled steps are told about the charts."""
        at = self.layout
        columns, alpha, total, mass, floor = self.addresses()
        return ChartTable(
            states=at.states,
            symbols=at.symbols,
            band=at.band,
            bottom_fix=self.bottom_fix,
            times=at.times,
            size=at.size,
            start=of_table(at.start),
            stride=of_table(at.stride),
            columns=columns,
            log_alpha=alpha,
            log_total=total,
            mass=mass,
            floor=floor,
        )
