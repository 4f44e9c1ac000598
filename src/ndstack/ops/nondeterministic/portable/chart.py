"""A chart that is carried from step to step on any device (see `store`).

Charts share a store as long as each of them has one successor; a second successor (beam search) gets a copy.
With a window, the chart is moved to the beginning of new memory when the store is full, and keeps the last
D + 1 times. In the graph of derivatives a chart is represented by two `links`, tensors that take no memory,
whose gradients are the derivatives with respect to the columns and to log alpha.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import memory
from ndstack.ops.nondeterministic.portable.backward import Adjoint
from ndstack.ops.nondeterministic.portable.store import Automaton, Store
from ndstack.ops.nondeterministic.store import Filled
from ndstack.ops.runtime.addresses import same_memory
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives

_PACKED = ("columns", "log_alpha", "log_total", "floor", "lost", "trusted", "invalid")
_MOST = 10_000


@dataclasses.dataclass(eq=False, slots=True)
class DeviceChart:
    """The charts of a batch of stacks after some step; a value, which nobody changes.

    Attributes:
        store: where the numbers are.
        lost: [B, K], a bound on the mass of runs lost to underflow, relative to all mass.
        trusted: [B], whether it was never too large.
        invalid: [B], whether a sequence was given a nan (see `invalid_sequences`).
        time: how many steps there have been; with a window, since the chart was moved.
        links: what represents the chart in the graph of derivatives.
        filled: shared by all charts in the same memory.
        watched: whether steps look at `trusted` now and then; if not, whoever runs them has to.
    """

    store: Store
    lost: Tensor
    trusted: Tensor
    invalid: Tensor
    time: int
    links: tuple[Tensor, Tensor]
    filled: Filled
    watched: bool = True

    @classmethod
    def start(
        cls, automaton: Automaton, batch: int, steps: int, dtype: torch.dtype, device: torch.device
    ) -> Self:
        """Charts at time 0, with room for `steps` steps or more."""
        times = steps + 1 if steps > 1 else _likely_times(automaton.kinds)
        store = Store.start(automaton, batch, times, dtype, device)
        lost = torch.zeros_like(store.log_alpha[:, 0])
        flags = torch.zeros(batch, dtype=torch.bool, device=device)
        return cls(store, lost, ~flags, flags, 0, no_links(store), Filled(0))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the columns."""
        return self.store.columns.dtype

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that hold numbers."""
        return *self.store.tensors, self.lost, self.trusted, self.invalid

    @property
    def chain(self) -> None:
        """There are no chains here, which compiled charts have."""
        return

    @property
    def log_space(self) -> None:
        """Nor charts in log space."""
        return

    def settle(self) -> Self:
        """The same chart; for its links are ordinary tensors."""
        return self

    def requires_grad(self) -> bool:
        """Whether derivatives with respect to the chart are wanted."""
        return self.links[0].requires_grad

    def map(self, change: Callable[[Tensor], Tensor]) -> DeviceChart:
        """The same chart with every tensor changed: detached, moved, or with other rows of the batch."""
        store = self.store.map(change)
        shared = same_memory(store.columns, self.store.columns)
        links = no_links(store)
        if self.requires_grad():
            links = change(self.links[0]), change(self.links[1])
        flags = change(self.lost), change(self.trusted), change(self.invalid)
        filled = self.filled if shared else Filled(self.time)
        return DeviceChart(store, *flags, self.time, links, filled, self.watched)

    def room_after(self, steps: int) -> int:
        """For how many times there is room in memory where `steps` more steps can be written."""
        time, window = self.time, self.store.automaton.window
        if time + steps + 1 <= self.store.times:
            return self.store.times
        kept = time if window is None else min(time, window)
        return max(kept + steps + 1, 2 * kept)

    def grow(self, steps: int) -> DeviceChart:
        """The same chart in memory where `steps` more steps can be written, by the caller and nobody else."""
        old, time, window = self.store, self.time, self.store.automaton.window
        enough, may_write = time + steps + 1 <= old.times, self.filled.claim(time)
        if enough and may_write:
            return self
        shift = time - window if window is not None and not enough and time > window else 0
        times = self.room_after(steps)
        memory.check_room(
            old.automaton, len(self.lost), times - 1, self.dtype, self.lost.device, self.requires_grad()
        )
        store = old.moved(time, times, shift)
        move = self.requires_grad()
        links = _MoveLinks.apply(*self.links, store, time, shift) if move else no_links(store)
        flags = self.lost, self.trusted, self.invalid
        return DeviceChart(store, *flags, time - shift, links, Filled(time - shift), self.watched)

    def pack(self) -> dict[str, Tensor]:
        """What a file has to hold: the times that there have been; no derivatives."""
        at, times = self.store.automaton, self.time + 1
        columns = self.store.columns[:, :, : times * at.states, : times * at.kinds]
        alpha, total, floor = (part[:, :times] for part in self.store.tensors[1:])
        numbers = (columns, alpha, total, floor, self.lost, self.trusted, self.invalid)
        return dict(zip(_PACKED, numbers, strict=True))

    @classmethod
    def unpack(cls, automaton: Sequence[object], time: int, parts: Mapping[str, Tensor]) -> Self:
        """The chart that `pack` took apart; ValueError if it is none."""
        states, symbols, window, fix = automaton
        sizes = (states, symbols, 1 if window is None else window)
        if not all(type(size) is int and 0 < size <= _MOST for size in sizes) or type(fix) is not bool:
            raise ValueError(f"a chart of an automaton {automaton}")
        assert isinstance(states, int)
        assert isinstance(symbols, int)
        at = Automaton(states, symbols, window if isinstance(window, int) else None, fix)
        columns, alpha, total, floor, lost, trusted, invalid = (parts[name] for name in _PACKED)
        store = Store(at, columns, alpha, total, floor)
        chart = cls(store, lost, trusted, invalid, time, no_links(store), Filled(time))
        if type(time) is not int or not chart.fits(
            (states, symbols, at.window or 0, fix), len(lost), lost.device
        ):
            raise ValueError(
                f"a chart of shapes {[list(part.shape) for part in chart.tensors]} at time {time}"
            )
        return chart

    def fits(self, automaton: tuple[int, int, int, bool], batch: int, device: torch.device) -> bool:
        """Whether these are charts of such an automaton, of the right sizes (see `Chart.fits`)."""
        at = self.store.automaton
        times, kinds = self.store.times, at.kinds
        each = (batch, times, kinds)
        columns = (batch, at.symbols, times * at.states, times * kinds)
        shapes = [columns, each, each, each, (batch, kinds), (batch,), (batch,)]
        shapes += [columns, (batch, times + 1, kinds)]
        parts: tuple[object, ...] = (*self.tensors, *self.links)
        return (
            (at.states, at.symbols, at.window or 0, at.bottom_fix) == automaton
            and 0 <= self.time < times
            and all(isinstance(part, Tensor) and part.layout is torch.strided for part in parts)
            and [tuple(part.shape) for part in (*self.tensors, *self.links)] == shapes
            and self.dtype in (torch.float32, torch.float64)
            and {part.dtype for part in (*self.store.tensors[1:], self.lost)} == {self.store.wide}
            and self.trusted.dtype == self.invalid.dtype == torch.bool
            and all(part.device.type == device.type for part in self.tensors)
        )


def no_links(store: Store) -> tuple[Tensor, Tensor]:
    """Links of a chart that no derivatives flow into."""
    batch, times, kinds = store.log_alpha.shape
    zero = store.columns.new_zeros(())
    return zero.expand(store.columns.shape), zero.expand(batch, times + 1, kinds)


def _likely_times(kinds: int) -> int:
    """For how many times to make room at the first step: about a megabyte in float32."""
    return max(16, min(64, math.isqrt(2**18 // kinds**2)))


class _MoveLinks(Operation):
    @staticmethod
    def forward(
        ctx: Context, columns: Tensor, alpha: Tensor, store: Store, time: int, shift: int
    ) -> tuple[Tensor, Tensor]:
        ctx.shapes, ctx.at, ctx.places = (columns.shape, alpha.shape), store.automaton, (time, shift)
        ctx.set_materialize_grads(False)
        return no_links(store)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        at, (time, shift) = ctx.at, ctx.places
        if grads[0] is None or grads[1] is None:
            return None, None, None, None, None
        back = Adjoint(grads[0].new_zeros(ctx.shapes[0]), grads[1].new_zeros(ctx.shapes[1]))
        count = time + 1 - shift
        first = at.kinds if shift else 0  # what stood on earlier times is forgotten
        here = slice(shift * at.states, (time + 1) * at.states)
        kept = slice(shift * at.kinds + first, (time + 1) * at.kinds)
        back.columns[:, :, here, kept] = grads[0][:, :, : count * at.states, first : count * at.kinds]
        lowest = 1 if shift else 0
        back.alpha[:, shift + lowest : time + 2] = grads[1][:, lowest : count + 1]
        return back.columns, back.alpha, None, None, None
