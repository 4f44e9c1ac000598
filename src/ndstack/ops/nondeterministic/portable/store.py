"""The memory of a batch of charts in torch operations.

Inside this folder configuration types are numbered symbol first, b = (y, r), so that the columns that one pop
can uncover, those of one symbol y, are the rows of one matrix:

    columns[B, y, (k, u), (i, a)] = P_k[i, a | (u, y)]

with i from -1, that is, position i + 1. Times and positions that have not been reached hold zeros.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

NEG = -math.inf


class Automaton(NamedTuple):
    """What all steps have in common: |Q|, |Gamma|, chapter 7's D or None, and chapter 8's bottom or not."""

    states: int
    symbols: int
    window: int | None
    bottom_fix: bool

    @property
    def kinds(self) -> int:
        """K, the number of configuration types."""
        return self.states * self.symbols

    def low(self, time: int) -> int:
        """The first position that counts at a time."""
        return 0 if self.window is None else max(0, time - self.window + 1)


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of logarithms and of sums: float64, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclasses.dataclass(eq=False, slots=True)
class Store:
    """The memory of a batch of charts, for T times.

    Attributes:
        columns: [B, S, T Q, T K], in float32 or float64; the logarithms are in float64.
        log_alpha: [B, T, K], log alpha, normalised at each time.
        log_total: [B, T, K], log alpha[t] before normalisation, given normalised alpha[t-1].
        floor: [B, T, K], a bound from below on the positive numbers of each column; inf if there are none.
    """

    automaton: Automaton
    columns: Tensor
    log_alpha: Tensor
    log_total: Tensor
    floor: Tensor

    @classmethod
    def start(
        cls, automaton: Automaton, batch: int, times: int, dtype: torch.dtype, device: torch.device
    ) -> Self:
        """Charts at time 0, with room for so many times."""
        states, symbols, kinds = automaton.states, automaton.symbols, automaton.kinds
        wide = wide_dtype(device)
        columns = torch.zeros(batch, symbols, times * states, times * kinds, dtype=dtype, device=device)
        log_alpha, log_total = (
            torch.full((batch, times, kinds), NEG, dtype=wide, device=device) for _ in range(2)
        )
        floor = torch.full((batch, times, kinds), math.inf, dtype=wide, device=device)
        log_alpha[:, 0, 0] = 0.0
        if automaton.bottom_fix:
            columns[:, 0, 0, 0] = 1.0
            floor[:, 0, 0] = 1.0
        return cls(automaton, columns, log_alpha, log_total, floor)

    @property
    def times(self) -> int:
        """T."""
        return self.log_alpha.shape[1]

    @property
    def wide(self) -> torch.dtype:
        """The dtype of everything but the columns."""
        return wide_dtype(self.columns.device)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All tensors."""
        return self.columns, self.log_alpha, self.log_total, self.floor

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same memory with every tensor changed."""
        return type(self)(self.automaton, *(change(tensor) for tensor in self.tensors))

    def moved(self, time: int, times: int, shift: int = 0) -> Self:
        """The charts up to a time in new memory for so many times, without the first `shift` of them."""
        at, count = self.automaton, time + 1 - shift
        new = self.start(at, len(self.columns), times, self.columns.dtype, self.columns.device)
        new.columns.zero_()
        here = (
            slice(shift * at.states, (time + 1) * at.states),
            slice(shift * at.kinds, (time + 1) * at.kinds),
        )
        part = self.columns[:, :, here[0], here[1]]
        new.columns[:, :, : part.shape[2], : part.shape[3]] = part
        if shift:
            new.columns[..., : at.kinds] = 0.0  # what stood on earlier times is forgotten
        for target, source in zip(new.tensors[1:], self.tensors[1:], strict=True):
            target[:, :count] = source[:, shift : time + 1]
        return new


def rows_of(tensor: Tensor, states: int, first: int, last: int) -> Tensor:
    """A view of the rows (k, u), first <= k < last, of a matrix [B, S, T Q, ...]."""
    return tensor[:, :, first * states : last * states]
