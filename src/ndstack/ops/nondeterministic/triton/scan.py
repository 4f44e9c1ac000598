"""Whole sequences and steps by Triton kernels; the rest is the portable backend (see `portable.scan`).

The products of large matrices are torch's own. They are done in full float32, whatever is allowed elsewhere:
with ten bits of TF32 probabilities would be right to three digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.portable import scan
from ndstack.ops.nondeterministic.portable.backward import Room
from ndstack.ops.nondeterministic.portable.forward import Inner, Older
from ndstack.ops.nondeterministic.portable.scan import Run
from ndstack.ops.nondeterministic.portable.store import Store
from ndstack.ops.nondeterministic.portable.weights import Scaled, StepWeights
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.nondeterministic.triton import strips
from ndstack.ops.runtime.triton_launch import power_of_two


def _sizes(states: int, symbols: int) -> dict[str, int]:
    """|Q| and |Gamma|, and the sizes of tiles that hold Q or K numbers."""
    padded = {"QP": power_of_two(states), "KP": power_of_two(states * symbols)}
    return {"Q": states, "S": symbols, **padded}


class TritonKernels(scan.Kernels):
    """All parts that go step by step, one kernel for each."""

    def inner_rows(self, weights: Scaled, states: int, symbols: int) -> Inner:
        """g and z."""
        batch, steps, kinds, _ = weights.push.shape
        rows = weights.push.new_zeros(batch, symbols, (steps + 1) * states, steps * kinds)
        uses = weights.push.new_zeros(batch, symbols, steps * states, steps * states)
        if batch:
            push, leave = weights.push.contiguous(), weights.leave.contiguous()
            strips.inner_kernel[(batch,)](push, leave, rows, uses, steps, **_sizes(states, symbols))
        return Inner(rows, uses)

    def strip_rows(
        self, store: Store, leave: Tensor, uses: Tensor, older: Older, newer: Tensor, strip: tuple[int, ...]
    ) -> None:
        """R and X for the rows of a strip."""
        at, (first, last, base) = store.automaton, strip
        states, kinds = at.states, at.kinds
        batch, steps = leave.shape[:2]
        width, oldest = (last - first) * kinds, max(first - 1, 0)
        columns = slice(oldest * states, max(last - 1, oldest) * states)
        rows = older.rows[..., (first - base) * kinds : (last - base) * kinds]
        known = store.columns[:, :, columns, first * kinds : last * kinds]
        popped = older.uses[..., columns]
        leave = leave.contiguous()
        if batch == 0 or width == 0:
            return
        strips.strip_kernel[(batch,)](
            leave, leave.stride(0), rows, *rows.stride()[:3], known, *known.stride()[:3],
            popped, *popped.stride()[:3], uses, *uses.stride()[:3], newer.contiguous(),
            steps, width, (oldest + 1 - first) * kinds, known.shape[2] // states,
            **_sizes(states, at.symbols),
        )  # fmt: skip

    def strip_back(
        self, room: Room, weights: StepWeights, older: Tensor, known: Tensor, strip: tuple[int, int]
    ) -> None:
        """G and B for the rows of a strip."""
        (batch, steps, kinds, states), (first, last) = weights.pop.shape, strip
        width = (last - first) * kinds
        rows = room.rows[..., first * kinds : last * kinds]
        uncovered = room.uncovered[..., first * kinds : last * kinds]
        carry = torch.cat([weights.replace, weights.pop], -1)
        count = known.shape[2] // states
        if batch == 0 or width == 0:
            return
        strips.strip_back_kernel[(batch,)](
            rows, *rows.stride()[:3], room.uses, *room.uses.stride()[:3], uncovered,
            *uncovered.stride()[:3], older.contiguous(), known, *known.stride()[:3],
            carry, weights.uncover.contiguous(), steps, width, width - count * kinds, count,
            room.uses.shape[3] - steps * states, first, room.start, room.window, room.base,
            **_sizes(states, kinds // states),
        )  # fmt: skip


KERNELS = TritonKernels()


def run(actions: Tensor, setting: Setting) -> tuple[Run, Tensor, Tensor, Tensor]:
    """As `portable.scan.run`."""
    return scan.run(actions, setting, KERNELS)


def gradient(
    chart: Run,
    setting: Setting,
    actions: Tensor,
    outputs: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    trusted: Tensor,
) -> Tensor:
    """As `portable.scan.gradient`."""
    return scan.gradient(chart, setting, actions, outputs, grads, trusted, KERNELS)
