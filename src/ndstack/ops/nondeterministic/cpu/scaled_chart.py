"""Charts in log space that are kept by blocks (see `scaled_sums`), without derivatives."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.settings import Setting, action_sizes
from ndstack.ops.nondeterministic.store import Filled
from ndstack.ops.runtime.addresses import array, empty, same_memory, written
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.threads import share

if TYPE_CHECKING:
    from ndstack.ops.nondeterministic.cpu import scaled_loops, scaled_sums
else:
    scaled_sums = LazyModule("ndstack.ops.nondeterministic.cpu.scaled_sums")
    scaled_loops = LazyModule("ndstack.ops.nondeterministic.cpu.scaled_loops")


@dataclasses.dataclass(eq=False, slots=True)
class ScaledChart:
    """The charts of a batch after some steps, without a window; a value, which nobody changes.

    Charts share memory as long as each of them has one successor; a second successor gets a copy.

    Attributes:
        numbers, scales, wide, alpha: what `scaled_sums.Chart` has, with a batch.
        time: how many steps there have been.
        filled: up to which time the memory has been written.
    """

    setting: Setting
    numbers: Tensor
    scales: Tensor
    wide: Tensor
    alpha: Tensor
    time: int
    filled: Filled

    @classmethod
    def start(cls, setting: Setting, batch: int, steps: int) -> Self:
        """Charts at time 0, with room for so many steps."""
        chart = cls._empty(setting, batch, steps + 1, 0)
        kinds, times = chart.kinds, chart.times
        for b in range(kinds):
            chart.numbers[:, _block_at(kinds, times, 0, b, 0)] = 0.0
        chart.scales[:, 0, :, 0] = -math.inf
        chart.wide[:, 0, :, 0] = False
        chart.alpha[:, : 2 * kinds] = -math.inf
        chart.alpha[:, kinds] = 0.0
        if setting.bottom_fix:
            chart.numbers[:, 0] = 1.0
            chart.scales[:, 0, 0, 0] = chart.alpha[:, 0] = 0.0
        return chart

    @classmethod
    def _empty(cls, setting: Setting, batch: int, times: int, time: int) -> Self:
        kinds = setting.states * setting.symbols
        blocks = (times - 1) // scaled_sums.ROWS + 1
        return cls(
            setting,
            empty(torch.float64, batch, _columns(kinds, times, blocks, 0, 0).start),
            empty(torch.float64, batch, blocks, kinds, times),
            empty(torch.bool, batch, blocks, kinds, times),
            empty(torch.float64, batch, (times + 1) * kinds),
            time,
            Filled(time),
        )

    @property
    def kinds(self) -> int:
        """K."""
        return self.setting.states * self.setting.symbols

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All tensors."""
        return self.numbers, self.scales, self.wide, self.alpha

    @property
    def times(self) -> int:
        """For how many times there is memory."""
        return self.scales.shape[3]

    def _flat(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All tensors as compiled code has them."""
        numbers, scales, wide, alpha = self.tensors
        return numbers, scales.flatten(2), wide.flatten(2), alpha

    def map(self, change: Callable[[Tensor], Tensor]) -> ScaledChart:
        """The same charts with every tensor changed: moved, or with other rows of the batch."""
        numbers, scales, wide, alpha = (change(tensor).contiguous() for tensor in self.tensors)
        filled = self.filled if same_memory(numbers, self.numbers) else Filled(self.time)
        return ScaledChart(self.setting, numbers, scales, wide, alpha, self.time, filled)

    def advance(self, actions: Tensor, attend: bool) -> tuple[Tensor, Tensor, ScaledChart]:
        """Further steps.

        Args:
            actions: [B, n, A], log weights in float64, none of which is nan or +inf.
            attend: whether the second result is wanted.

        Returns:
            log alpha [B, n, K]; the parts of it whose top symbol was pushed at step j = 0, ..., time + n,
            [B, n, K, j], or nothing; and the charts afterwards.
        """
        (batch, steps), kinds, kind = actions.shape[:2], self.kinds, torch.float64
        after = self._with_room(steps)
        end = self.time + steps
        width = end + 1 if attend else 0
        places = torch.full((batch, steps, kinds, width), -math.inf, dtype=kind)
        size = sum(action_sizes(self.setting.states, self.setting.symbols))
        share(
            batch, scaled_loops.advance, batch * steps * end**2 / 2 * kinds * kinds,
            self.setting.states, self.setting.symbols, self.time, array(actions, kind, batch, steps, size),
            *(written(part, part.dtype, *part.shape) for part in after._flat()),
            written(places, kind, *places.shape),
        )  # fmt: skip
        after.time = end
        after.filled.reached(end)
        first = (self.time + 2) * kinds
        alpha = after.alpha[:, first : first + steps * kinds].clone().view(batch, steps, kinds)
        return alpha, places, after

    def _with_room(self, steps: int) -> ScaledChart:
        """The same charts in memory to which the caller alone may write so many steps."""
        end, kinds, used = self.time + steps, self.kinds, self.time + 1
        if self.filled.claim(self.time) and end < self.times:
            return dataclasses.replace(self)
        new = ScaledChart._empty(self.setting, len(self.numbers), max(end, 2 * self.time) + 1, self.time)
        new.filled.claim(self.time)
        new.alpha[:, : (used + 1) * kinds] = self.alpha[:, : (used + 1) * kinds]
        blocks = range(self.time // scaled_sums.ROWS + 1)
        for block, b in itertools.product(blocks, range(kinds)):
            columns = slice(block * scaled_sums.ROWS, used)
            new.scales[:, block, b, columns] = self.scales[:, block, b, columns]
            new.wide[:, block, b, columns] = self.wide[:, block, b, columns]
            source, target = (_columns(kinds, times, block, b, used) for times in (self.times, new.times))
            new.numbers[:, target] = self.numbers[:, source]
        return new

    def logarithms(self) -> tuple[Tensor, Tensor]:
        """log gamma [B, time + 1, time + 1, K, K] as in `reference`, and log alpha [B, time + 2, K]."""
        batch, kinds, used, rows = len(self.numbers), self.kinds, self.time + 1, scaled_sums.ROWS
        gamma = torch.full((batch, used, used, kinds, kinds), -math.inf, dtype=torch.float64)
        for block, b in itertools.product(range(self.time // rows + 1), range(kinds)):
            place = _columns(kinds, self.times, block, b, used)
            part = self.numbers[:, place].view(batch, -1, rows, kinds)
            first = block * rows
            scales, wide = (x[:, block, b, first:used, None, None] for x in (self.scales, self.wide))
            logs = (torch.where(wide, part, part.log()) + scales).transpose(1, 2)
            gamma[:, first : first + rows, first:, :, b] = logs[:, : used - first]
        alpha = self.alpha[:, : (used + 1) * kinds].reshape(batch, used + 1, kinds)
        return gamma, alpha


def _block_at(kinds: int, times: int, block: int, b: int, k: int) -> slice:
    """Where gamma[. -> k, b] is (see `scaled_sums.block_at`)."""
    return _columns(kinds, times, block, b, k + 1, k)


def _columns(kinds: int, times: int, block: int, b: int, end: int, first: int | None = None) -> slice:
    """Where gamma[. -> k, b] is, for all k before an end that the block has, or from a first one on."""
    rows = scaled_sums.ROWS
    start = rows * block if first is None else first
    earlier = block * times - rows * (block * (block - 1) // 2)
    place = earlier * kinds + b * (times - rows * block) - rows * block
    return slice((place + start) * rows * kinds, (place + end) * rows * kinds)
