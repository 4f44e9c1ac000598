"""How much memory the nondeterministic stack takes on a GPU, and whether there is as much.

Of the portable backend and of Triton, for sequences of n steps, T = n + 1 times and K = |Q| |Gamma|; the
compiled backend takes less than half as much (docs/numerics.md).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic.portable import forward
from ndstack.ops.nondeterministic.portable.store import Automaton
from ndstack.ops.nondeterministic.settings import action_sizes

LARGE = 2**28
"""Nobody asks how much memory is free for less than this number of bytes."""


class Plan(NamedTuple):
    """Bytes for a batch of whole sequences.

    Attributes:
        chart: the columns, K^2 T^2 numbers per sequence.
        logs: log alpha, log totals and floors, in float64.
        actions: log weights, as given and symbol first, and scaled in float64.
        attention: K n (n + 1) numbers per sequence, if it is wanted.
        blocks: what blocks of steps need while they are computed, and what happens inside all of them.
        adjoint: the derivatives with respect to the chart.
        back: what the gradient needs besides, while it is computed.
    """

    chart: int
    logs: int
    actions: int
    attention: int
    blocks: int
    adjoint: int
    back: int

    @property
    def forward(self) -> int:
        """The most that a forward pass holds at a time."""
        return self.chart + self.logs + self.actions + self.attention + self.blocks

    @property
    def backward(self) -> int:
        """The most that a backward pass holds at a time, the chart included."""
        return self.chart + self.logs + self.actions + 2 * self.attention + self.adjoint + self.back


def plan(
    automaton: Automaton,
    batch: int,
    steps: int,
    *,
    dtype: torch.dtype = torch.float32,
    attend: bool = False,
) -> Plan:
    """The memory for sequences of n steps, in blocks as `portable.forward` has them."""
    states, symbols, kinds = automaton.states, automaton.symbols, automaton.kinds
    size, times = dtype.itemsize, steps + 1
    block = min(forward.BLOCK, steps, automaton.window or steps)
    count = math.ceil(steps / block) if block else 0
    rows = min(times, (automaton.window or times) + block)
    given = steps * sum(action_sizes(states, symbols))
    inner = count * (block + 1) * block * kinds**2 + count * block**2 * states * kinds
    wide = (block + 1) * rows * kinds**2  # the rows of one block
    uses = block * rows * kinds * states
    piece = min(rows, 64) * states * symbols * rows * kinds  # what a block tells earlier columns, at a time
    each = Plan(
        chart=size * kinds**2 * times**2,
        logs=3 * 8 * times * kinds,
        actions=(2 * size + 4 * 8) * given,
        attention=2 * size * kinds * steps * times if attend else 0,
        blocks=size * (inner + 2 * wide + uses) + 8 * (block * kinds) ** 2,
        adjoint=size * kinds**2 * times**2,
        back=size * (3 * wide + 2 * uses + piece // 2),
    )
    return Plan(*(batch * part for part in each))


def free_bytes(device: torch.device) -> int | None:
    """How many bytes are free on a device; None where nobody knows."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    known = Path("/proc/meminfo")
    if device.type != "cpu" or not known.exists():
        return None
    lines = dict(line.split(":", 1) for line in known.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def check_room(
    automaton: Automaton,
    batch: int,
    steps: int,
    dtype: torch.dtype,
    device: torch.device,
    differentiable: bool,
) -> None:
    """Raise an error in one line, which says what to reduce, if sequences do not fit the free memory.

    Args:
        dtype, device: of the charts.
        differentiable: whether there will be a backward pass.
    """
    found = plan(automaton, batch, steps, dtype=dtype)
    needed = max(found.forward, found.backward) if differentiable else found.forward
    if needed < LARGE:
        return
    free = free_bytes(device)
    if free is None or needed <= free:
        return
    fits = int(batch * free / needed)
    shorter = int(steps * math.sqrt(free / needed))
    raise NdstackError(
        f"a batch of {batch} sequences of {steps} steps with {automaton.states} states and "
        f"{automaton.symbols} symbols takes {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free on "
        f"{device}; reduce the batch{f' to {fits}' if fits else ''}, or the steps to {shorter}, or the "
        "states or symbols, or give the stack a window"
    )
